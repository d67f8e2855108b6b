#!/bin/bash
# Record session.sh as it runs, as an asciicast, and make an animated picture of it: `make recording`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../.." && pwd)
PATH=$tree/.venv/bin:$PATH

mkdir -p "$tree/build/recording"
cd "$tree/build/recording"
if ! test -x tools/bin/termtosvg; then # in an environment of their own: nothing else needs them
    python -m venv tools
    tools/bin/python -m pip install --quiet --quiet --disable-pip-version-check asciinema==2.4.0 termtosvg==1.1.0
fi
python "$here/texts.py"
PAUSE=0 "$here/session.sh" > /dev/null 2>&1 # once before: kernels come from the cache then, which the output says
tools/bin/asciinema rec --quiet --overwrite --cols 100 --rows 27 --command "$here/session.sh" session.cast < /dev/null
tools/bin/termtosvg render session.cast session.svg --template window_frame --loop-delay 5000
mv session.cast session.svg "$here"
