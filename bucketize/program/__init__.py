"""What was decided of a module: plain data between choosing and running."""
