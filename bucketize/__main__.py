"""`python -m bucketize`: the command line."""

from bucketize.cli.group import main

if __name__ == "__main__":
    main(prog_name="python -m bucketize")
