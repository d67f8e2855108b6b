"""Where buckets should be: partitions of sizes by what their clones are expected to take."""
