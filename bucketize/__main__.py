"""`python -m bucketize`: the command line."""

from bucketize.cli.__main__ import main

if __name__ == "__main__":
    main("python -m bucketize")
