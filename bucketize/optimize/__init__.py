"""One call from a model and its traffic to an executable: buckets, schedules, and what they buy."""
