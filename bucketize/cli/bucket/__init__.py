"""Subcommands about buckets and the requests that they serve, a module each."""
