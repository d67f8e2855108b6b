"""The subcommands, a module each."""
