"""Running an image: contexts, segments, captured calls, loops, threads."""
