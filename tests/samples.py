"""The samples of ops, as tests draw them."""

from bucketize.ops.sample import Sample, parse, samples

__all__ = ["Sample", "parse", "samples"]
