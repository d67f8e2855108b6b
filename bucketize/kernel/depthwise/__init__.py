"""Depthwise convolutions over NHWC images."""
