"""Build the site of this tree into build/site/VERSION, beside those of other versions.

VERSION is the tag, or `dev` behind it. `versions.json` lists all folders that are there, for the
switcher of each; the page above them leads to the newest release, or to `dev` if there is none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from axe import check

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "site"
DEV = "dev"


def main(address: str) -> None:
    """Build, and tell where; versions will be below of `address`."""
    version = tag() or DEV
    build(version)
    check(OUT / version)
    versions = link(OUT, address)
    print(f"{OUT.relative_to(ROOT)}: {', '.join(versions)}")


def tag() -> str:
    """The release that this commit is, if it is one: what was installed may be older, or newer."""
    command = ["git", "describe", "--tags", "--exact-match", "--match", "*[0-9].[0-9]*"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip().removeprefix("v")


def build(version: str) -> None:
    """Have Sphinx write the pages of this tree; what it warns of is an error."""
    # All pages anew: of one that is kept, links to what has gone since are not looked at.
    options = ["-q", "-W", "--keep-going", "-E", "-a", "-j", "auto", "-d", "build/doctrees"]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "docs", str(OUT / version)],
        cwd=ROOT,
        env={**os.environ, "BUCKETIZE_SITE_VERSION": version},
        check=False,
    )
    if built.returncode:  # it has said why
        sys.exit(built.returncode)


def link(folder: Path, address: str) -> list[str]:
    """Write what leads to the versions in a folder; these: `dev`, then the newest first."""
    built = [path.parent.name for path in folder.glob("*/objects.inv")]
    versions = sorted(built, key=lambda v: (v == DEV, numbers(v)), reverse=True)
    rows = [{"version": v, "url": f"{address.rstrip('/')}/{v}/"} for v in versions]
    (folder / "versions.json").write_text(json.dumps(rows))
    newest = next((v for v in versions if v != DEV), DEV)
    (folder / "index.html").write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>bucketize</title>\n'
        f'<meta http-equiv="refresh" content="0; url={newest}/index.html">\n'
    )
    return versions


def numbers(version: str) -> list[int]:
    """Of a release, by which they are in order."""
    return [int(part) for part in version.split(".") if part.isdigit()]


if __name__ == "__main__":
    main(sys.argv[1])
