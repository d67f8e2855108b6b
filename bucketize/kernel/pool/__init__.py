"""Pooling over NHWC images."""
