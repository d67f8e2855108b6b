"""Tuning: tasks, search and confirmation. What measures is in `measure`, what is kept in `log`."""
