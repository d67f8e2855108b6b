"""Tests on 64-bit Arm in emulation: `make test-arm64` runs it, CI does not.

It needs Debian's apt and qemu-user-static. A Python of Arm and the wheels for it are put into
build/arm64; what runs in it is 10 to 30 times slower than here, and right: it tells results, never
a time. `bucketize` itself is the tree's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "arm64"
EMULATOR = "qemu-aarch64-static"
LIBRARIES = (  # Debian's, that its Python and the wheels load
    *("libc6", "libgcc-s1", "libstdc++6", "libgomp1", "zlib1g", "libexpat1", "libffi8", "libssl3"),
    *("libbz2-1.0", "liblzma5", "libsqlite3-0", "libreadline8", "libtinfo6", "libncursesw6"),
    *("libuuid1", "libcrypt1", "libdb5.3", "media-types"),
)
PYTHON = "python3.11"  # of Debian 12
GLIBC = ("2_17", "2_24", "2_26", "2_27", "2_28", "2_31", "2_34")
UNUSED = ("mypy", "ruff", "pandas-stubs", "types-pyyaml", "distributed")
TESTS = (
    *("tests/machine/test_target.py", "tests/kernel/test_integer.py"),
    *("tests/kernel/test_kernel_build.py", "tests/kernel/test_kernel_bytes.py"),
    "tests/kernel/test_kernel_bfloat16.py",
    *("tests/kernel/test_pool.py", "tests/kernel/test_vector.py", "tests/link/test_memory.py"),
    "tests/kernel/test_vector_templates.py::test_the_highest_tiles_of_this_machine",
    *("tests/runtime/test_thread_pool.py", "tests/save/test_save.py", "tests/save/test_trust.py"),
)
"""Of all others some ask nothing of the processor, some would take hours, and those that compare
with onnxruntime cannot run: it crashes in qemu 7.2 as it is imported. ONNX's tests of nodes, which
compare with what it recorded, follow on them."""


def main() -> int:
    """Set the emulator up where it is not yet, and run the tests that are named, or `TESTS`."""
    if shutil.which(EMULATOR) is None:
        sys.stderr.write(f"error: there is no {EMULATOR}: apt-get install qemu-user-static\n")
        return 2
    if not (PLACE / "python").exists():
        set_up()
    command = [PLACE / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    tests = sys.argv[1:] or TESTS
    failed = subprocess.run(
        [*command, *tests], check=False, cwd=ROOT, env=environment("cache")
    ).returncode
    return failed or (0 if sys.argv[1:] else nodes())


def environment(cache: str) -> dict[str, str]:
    """Of a process that keeps its kernels in a folder of its own."""
    own = {"BUCKETIZE_CACHE": str(PLACE / cache), "PYTHONPATH": str(ROOT)}
    return {**os.environ, **own, "BUCKETIZE_CALIBRATE": "0"}


def nodes() -> int:
    """ONNX's tests of nodes, compiled and saved here, and run there: as many are equal."""
    place = PLACE / "nodes"
    shutil.rmtree(place, ignore_errors=True)
    told = []
    for python, way, cache in (
        (sys.executable, "--save", "cache_here"),
        (PLACE / "python", "--load", "cache"),
    ):
        command = [python, "-m", "benchmarks", "conformance", "-m", "as shipped", way, place]
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment(cache)
        )
        told.append([line for line in done.stdout.splitlines() if not line.startswith("refused")])
    sys.stdout.write("\n".join(["", "here:", *told[0], "there:", *told[1], ""]))
    return told[0] != told[1]


def set_up() -> None:
    """A Python of 64-bit Arm, in minutes and 1.5 GB; it is there when it is whole."""
    for name in ("lists/partial", "debs", "root", "site"):
        (PLACE / name).mkdir(parents=True, exist_ok=True)
    system()
    wheels()
    started = PLACE / "starting"
    started.write_text(
        f"""#!/bin/sh
export PYTHONPATH="{PLACE}/site${{PYTHONPATH:+:$PYTHONPATH}}"
exec {EMULATOR} -L "{PLACE}/root" "{PLACE}/root/usr/bin/{PYTHON}" "$@"
"""
    )
    # what Python starts is this script again
    (PLACE / "site/sitecustomize.py").write_text(
        f"import sys\n\nsys.executable = {str(PLACE / 'python')!r}\n"
    )
    started.chmod(0o755)
    started.rename(PLACE / "python")


def system() -> None:
    """Debian's Python and libraries, unpacked."""
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "Dir::State::status": "/dev/null",
        "Dir::State::Lists": PLACE / "lists",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    minimal = [f"{PYTHON}-minimal", f"lib{PYTHON}-minimal", f"lib{PYTHON}-stdlib"]
    run([*apt, "update"])
    run([*apt, "download", PYTHON, *minimal, *LIBRARIES], PLACE / "debs")
    for package in sorted((PLACE / "debs").glob("*.deb")):
        run(["dpkg", "-x", package, PLACE / "root"])


def wheels() -> None:
    """What the project and its tests need; the project itself for its metadata alone."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    dependencies = told["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
    wanted = [*dependencies, *told["project"]["optional-dependencies"]["test"]]
    wanted = [name for name in wanted if not name.startswith(UNUSED)]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", PLACE / "site"]
    platforms = [f"--platform=manylinux_{version}_aarch64" for version in GLIBC]
    version = PYTHON.removeprefix("python")
    of_arm = ["--only-binary=:all:", f"--python-version={version}", *platforms]
    run([*pip, *of_arm, "--platform=manylinux2014_aarch64", *wanted])
    run([*pip, "--no-deps", ROOT / "runtime", ROOT])


def run(command: Sequence[str | Path], place: Path = ROOT) -> None:
    """Run a command, or stop with what it says."""
    subprocess.run(command, check=True, cwd=place)


if __name__ == "__main__":
    sys.exit(main())
