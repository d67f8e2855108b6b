"""A model behind two replicas of Ray Serve, asked by a handle and over HTTP.

Run it with: pip install 'bucketize[ray]' && python examples/ray/serve.py
"""

from __future__ import annotations

import json
import tempfile
import urllib.request
from pathlib import Path

import numpy as np
from ray import serve

import bucketize
from bucketize import zoo
from bucketize.integrations.ray import deployment
from dispatchers import log_dispatcher

URL = "http://127.0.0.1:8000/v2/models/mlp/infer"


def main() -> None:
    """Save a program, deploy it, ask, and see who answered what."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mlp.bkt"
        mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})
        bucketize.compile(bucketize.dispatch(mod, log_dispatcher)).save(path)
        cores = {"num_cpus": 0.5}
        handle = serve.run(deployment(path, num_replicas=2, ray_actor_options=cores))

        data = np.ones((3, 784), np.float32)
        asked = [handle.infer.remote({"data": data}) for _ in range(10)]
        print("a handle:", {each.result()["output"].shape for each in asked})

        tensor = {"name": "data", "datatype": "FP32", "shape": [3, 784], "data": data.tolist()}
        body = json.dumps({"inputs": [tensor]}).encode()
        with urllib.request.urlopen(URL, body) as answer:
            print("HTTP:", json.load(answer)["outputs"][0]["shape"])
        counted = [traffic for traffic in handle.broadcast("traffic").results() if traffic]
        print("replicas counted", counted[0].merged(*counted[1:]).total)
        serve.delete("default")


if __name__ == "__main__":
    main()
