"""The recording shows the commands of its script, in half a minute."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent.parent / "docs" / "recording"
SCRIPT = (HERE / "session.sh").read_text()


def test_the_recording_is_of_the_script() -> None:
    head, *events = map(json.loads, (HERE / "session.cast").read_text().splitlines())
    assert (head["version"], head["width"]) == (2, 100)
    printed = "".join(text for _, kind, text in events if kind == "o")
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed).splitlines()
    commands = re.findall(r"^show (.+)$", SCRIPT, re.MULTILINE)
    notes = re.findall(r"^note '(.+)'$", SCRIPT, re.MULTILINE)
    assert len(commands) == len(notes) == 3
    assert [line for line in plain if line[:2] == "$ "] == [f"$ {command}" for command in commands]
    assert [line for line in plain if line[:2] == "# "] == [f"# {note}" for note in notes]
    assert 20 < events[-1][0] < 45  # seconds
    assert not re.search("error:|Traceback", printed)


def test_the_picture_is_of_the_recording() -> None:
    root = ElementTree.parse(HERE / "session.svg").getroot()
    texts = {
        "".join(e.itertext()).replace("\xa0", " ") for e in root.iter() if e.tag[-4:] == "text"
    }
    assert any("bucketize run zoo:mlp -d log --at N=3 --explain" in text for text in texts)
