"""Ask for each of the site's links to elsewhere, by Sphinx's linkcheck; needs the network.

Those that somebody answers are told from those of hosts that cannot be reached: where that is all
of them there is no network, and no link is said to be broken.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "links"
UNREACHABLE = ("NameResolutionError", "NewConnectionError", "ConnectTimeoutError", "ProxyError")
"""Of requests and urllib3: nobody was there to answer."""


def main() -> None:
    """Check, and say what came of it; exit code 1 where a link is broken, 2 without a network."""
    options = ["-Q", "-b", "linkcheck", "-d", "build/doctrees"]
    command = [sys.executable, "-m", "sphinx", *options, "docs", str(OUT)]
    (OUT / "output.json").unlink(missing_ok=True)
    built = subprocess.run(command, cwd=ROOT, check=False)
    if not (OUT / "output.json").exists():  # it did not come so far
        sys.exit(built.returncode or 1)
    lines = (OUT / "output.json").read_text().splitlines()
    said, code = told([json.loads(line) for line in lines])
    print(said)
    sys.exit(code)


def told(links: Iterable[Mapping[str, str | int]]) -> tuple[str, int]:
    """What came of links, as linkcheck writes them, and the exit code that says so."""
    asked = [link for link in links if link["status"] not in ("unchecked", "ignored", "local")]
    failed = [link for link in asked if link["status"] in ("broken", "timeout")]
    silent = [link for link in failed if is_unreachable(str(link["info"]))]
    if asked and len(silent) == len(asked):
        return f"no network: none of {len(asked)} links to elsewhere could be checked", 2
    lines = [
        f"{link['filename']}:{link['lineno']}: {link['uri']}: {link['info']}" for link in failed
    ]
    fine = len(asked) - len(failed)
    broken = len(failed) - len(silent)
    count = f"{fine} of {len(asked)} links to elsewhere answer"
    more = f", {broken} are broken, {len(silent)} cannot be reached" if failed else ""
    return "\n".join([*lines, count + more]), int(bool(failed))


def is_unreachable(why: str) -> bool:
    """Whether nobody answered, by what requests says."""
    return any(error in why for error in UNREACHABLE)


if __name__ == "__main__":
    main()
