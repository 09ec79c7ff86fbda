#!/usr/bin/env bash
# Install what tests/interop needs, as its lock has it: js-libp2p, and a Node that it runs on.
# Safe to repeat. Needs npm; no script of a package is run.
set -euo pipefail
cd "$(dirname "$0")/../tests/interop"

if ! command -v npm >/dev/null; then
    echo "error: no npm found" >&2
    echo "hint: apt-get install npm, then setup/interop.sh again" >&2
    exit 1
fi
if [ ! node_modules/.package-lock.json -nt package-lock.json ]; then
    echo "installing js-libp2p for tests/interop" >&2
    npm ci --loglevel=error
fi
