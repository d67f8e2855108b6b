"""The release that this is."""

from importlib.metadata import version


def release() -> str:
    """The last tag: commits behind it count as it, for logs and saved programs."""
    return version("bucketize").partition(".post")[0]
