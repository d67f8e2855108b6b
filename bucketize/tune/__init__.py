"""Tuning: tasks, search, measurement in a child process, and the log.

Import from the submodules: `log` and `environment` are light, `session` (the function behind
`bucketize.tune`) loads scikit-optimize.
"""
