"""Faces that programs written for other libraries know; `bucketize.InferenceSession` is one."""
