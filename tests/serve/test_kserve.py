"""What `examples/kserve` asks of KServe, and of our own server; no cluster is there to try it on.

The fields are those of KServe's types: `pkg/apis/serving/v1alpha1/servingruntime_types.go`,
`pkg/apis/serving/v1beta1/{predictor,predictor_model,component}.go` of https://github.com/kserve/kserve
and of Kubernetes' containers.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from bucketize.serve.__main__ import parser
from bucketize.serve.queue import seconds

ROOT = Path(__file__).parents[2]
HERE = ROOT / "examples" / "kserve"

RESOURCES = {"requests": {"cpu": str, "memory": str}, "limits": {"cpu": str, "memory": str}}
CONTAINER = {
    "name": str,
    "image": str,
    "args": [str],
    "ports": [{"containerPort": int, "protocol": str}],
    "readinessProbe": {"httpGet": {"path": str, "port": int}},
    "resources": RESOURCES,
    "securityContext": {
        "allowPrivilegeEscalation": bool,
        "capabilities": {"drop": [str]},
        "privileged": bool,
        "runAsNonRoot": bool,
    },
}
TOP = {"apiVersion": str, "kind": str, "metadata": {"name": str}}
FIELDS = {
    "runtime.yaml": {
        **TOP,
        "spec": {
            "annotations": str,
            "supportedModelFormats": [{"name": str, "version": str, "autoSelect": bool}],
            "protocolVersions": [str],
            "containers": [CONTAINER],
        },
    },
    "service.yaml": {
        **TOP,
        "spec": {
            "predictor": {
                "minReplicas": int,
                "maxReplicas": int,
                "nodeSelector": str,
                "model": {"modelFormat": {"name": str}, "protocolVersion": str, "storageUri": str},
            }
        },
    },
}


def read(name: str) -> Any:
    return yaml.safe_load((HERE / name).read_text())


def fits(value: Any, field: Any, where: str) -> None:
    """Each key is a field, each value of its type; a type in place of fields is of all keys."""
    if isinstance(field, list):
        for i, each in enumerate(value):
            fits(each, field[0], f"{where}[{i}]")
    elif isinstance(field, dict):
        for key, each in value.items():
            assert key in field, f"{where}.{key}"
            fits(each, field[key], f"{where}.{key}")
    elif isinstance(value, dict):
        assert all(type(each) is field for each in value.values()), where
    else:
        assert type(value) is field, where


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_those_of_kserve(name: str) -> None:
    fits(read(name), FIELDS[name], name)


def words(instruction: str) -> list[str]:
    """Those of an instruction of the container file."""
    (text,) = re.findall(rf"^{instruction} (.*)$", (HERE / "Containerfile").read_text(), re.M)
    return list(json.loads(text))


def test_the_server_takes_what_the_manifest_gives() -> None:
    (container,) = read("runtime.yaml")["spec"]["containers"]
    entry = words("ENTRYPOINT")
    assert entry[:3] == ["python", "-m", "bucketize.serve"]
    given = [text.replace("{{.Name}}", "encoder") for text in container["args"]]
    options = parser().parse_args([*entry[3:], *given])
    assert options.models == ["encoder=/mnt/models/model.bkt"]
    assert (options.host, seconds(options.latency), options.trusted) == ("0.0.0.0", 0.2, True)
    assert options.limit_bytes < 2 << 30 == int(container["resources"]["limits"]["memory"][0]) << 30
    ports = {p["containerPort"] for p in container["ports"]}
    probe = container["readinessProbe"]["httpGet"]
    assert ports == {options.port} == {probe["port"]}
    assert f"EXPOSE {options.port}\n" in (HERE / "Containerfile").read_text()
    assert parser().parse_args([*entry[3:], *words("CMD")]).trusted


def test_the_service_finds_the_runtime() -> None:
    """As KServe matches them: a format by its name if autoSelect is true, and the protocol."""
    runtime, predictor = read("runtime.yaml")["spec"], read("service.yaml")["spec"]["predictor"]
    chosen = {f["name"] for f in runtime["supportedModelFormats"] if f["autoSelect"]}
    assert predictor["model"]["modelFormat"]["name"] in chosen
    assert predictor["model"]["protocolVersion"] in runtime["protocolVersions"]


def test_the_image_has_what_the_wheel_asks_for() -> None:
    of_runtime = tomllib.loads((ROOT / "runtime" / "pyproject.toml").read_text())["project"]
    of_package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    by_http, every = (set(p["optional-dependencies"]["serve"]) for p in (of_runtime, of_package))
    assert "bucketize_runtime-*.whl)[serve]" in (HERE / "Containerfile").read_text()
    assert by_http < every
    assert all(name.startswith("grpcio") for name in every - by_http)
