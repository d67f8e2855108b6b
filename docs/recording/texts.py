"""Texts for the recording: 128 of random tokens, as long as short queries are, in texts.npz."""

import numpy as np

from bucketize import zoo

random = np.random.default_rng(0)
traffic = zoo.traffic("queries")
arrays = {}
for i, n in enumerate(random.choice(traffic.sizes[:, 0], 128, p=traffic.requests / traffic.total)):
    arrays[f"{i}/input_ids"] = random.integers(0, 30_000, (1, n))
    arrays[f"{i}/attention_mask"] = np.ones((1, n), np.int64)
np.savez("texts.npz", **arrays)
