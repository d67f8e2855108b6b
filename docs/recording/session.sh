#!/bin/bash
# What the recording shows: commands as they run, each behind a prompt, and pauses to read what they print.
set -eu
PAUSE=${PAUSE-2.5}

show() {
    printf '\033[32m$\033[0m %s\n' "$*"
    sleep "$PAUSE"
    "$@"
    sleep "$PAUSE"
    printf '\n'
}

note() { printf '\033[2m# %s\033[0m\n' "$1"; }

note 'resnet18 on images of any size: how many clones does it need?'
show bucketize partition zoo:resnet18 --dim N=1..1 --dim H=64..511 --dim W=64..511
note 'a perceptron in clones for 1, 2 to 3, 4 to 7, ... rows: what runs for 3?'
show bucketize run zoo:mlp -d log --at N=3 --explain
note '128 texts of 9 to 56 tokens through an encoder, without padding: in how many calls?'
show bucketize run zoo:bert-mini --many texts.npz --explain
