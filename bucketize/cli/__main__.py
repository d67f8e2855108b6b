"""`python -m bucketize.cli`."""

from bucketize.cli.group import main

main()
