"""Build the site of this tree into build/site/VERSION, beside those of other versions.

VERSION is the tag, or `dev` behind it. `versions.json` lists all folders that are there, for the
switcher of each; the page above them leads to the newest release, or to `dev` if there is none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from bucketize.release import release

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "site"
DEV = "dev"
HOME = '<!doctype html><meta charset="utf-8"><title>bucketize</title>\n'


def main(address: str) -> None:
    """Build, and tell where; `address` is what versions will be below of."""
    version = release() if import_module("bucketize._version").__version__ == release() else DEV
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
    every = versions(OUT)
    rows = [{"version": v, "url": f"{address.rstrip('/')}/{v}/"} for v in every]
    (OUT / "versions.json").write_text(json.dumps(rows))
    newest = next((v for v in every if v != DEV), DEV)
    (OUT / "index.html").write_text(
        f'{HOME}<meta http-equiv="refresh" content="0; url={newest}/index.html">\n'
    )
    print(f"{OUT.relative_to(ROOT)}: {', '.join(every)}")


def versions(folder: Path) -> list[str]:
    """The versions that are there: `dev`, then the newest first."""
    built = [path.parent.name for path in folder.glob("*/objects.inv")]
    return sorted(built, key=lambda v: (v == DEV, _numbers(v)), reverse=True)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


if __name__ == "__main__":
    main(sys.argv[1])
