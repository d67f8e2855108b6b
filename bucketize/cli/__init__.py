"""The command line: one module per subcommand, each importing what it needs when it runs."""
