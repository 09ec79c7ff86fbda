#!/usr/bin/env bash
# Install what the tests of interoperation need, as its locks have it: js-libp2p with a Node
# that it runs on, and a go-libp2p. Safe to repeat. Needs npm and .venv; no package's scripts run.
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
if [ ! go_modules/p2pd -nt requirements.lock ]; then
    echo "installing go-libp2p for tests/interop" >&2
    unpacked=$(mktemp -d)
    trap 'rm -rf "$unpacked"' EXIT
    ../../.venv/bin/pip install --quiet --no-deps --only-binary :all: --no-compile \
        --require-hashes --requirement requirements.lock --target "$unpacked"
    install -D "$unpacked/hivemind/hivemind_cli/p2pd" go_modules/p2pd
fi
