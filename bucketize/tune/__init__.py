"""Tuning: tasks, search, measurement in a child process, and the log.

Only `session` loads the search and its scikit-optimize: `log` and `choice`, which `compile` needs,
are light.
"""
