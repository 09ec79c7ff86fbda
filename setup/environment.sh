#!/usr/bin/env bash
# Make .venv with the pinned dependencies and this project. Safe to repeat.
# PYTHON=python3.12 names the Python to use.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "error: $1" >&2
    echo "hint: $2" >&2
    exit 1
}

usable() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null
}

find_python() {
    local name
    for name in ${PYTHON:-python3.11 python3.12 python3}; do
        if command -v "$name" >/dev/null && usable "$name"; then
            echo "$name"
            return
        fi
    done
    fail "no Python 3.11 or 3.12 found" \
        "apt-get install python3 python3-venv, or name one: PYTHON=/path/to/python3.11 make setup"
}

# NAME HEADER WHOSE PACKAGE: built from source where there is no wheel, it needs WHOSE headers.
install_built() {
    local pinned
    pinned=$(grep "^$1==" requirements.lock)
    .venv/bin/pip install --quiet --only-binary "$1" "$pinned" 2>/dev/null && return
    if ! printf '#include <%s>\n' "$2" | c++ -E -x c++ - >/dev/null 2>&1; then
        fail "$1 has no wheel for this machine, and $3's headers or a C++ compiler are missing" \
            "apt-get install $4 g++ python3-dev, then make setup again"
    fi
    .venv/bin/pip install --quiet "$pinned"
}

if ! { [ -x .venv/bin/python ] && usable .venv/bin/python; }; then
    python=$(find_python)
    echo "making .venv with $("$python" --version)" >&2
    "$python" -m venv --clear .venv ||
        fail "$python cannot make a virtual environment" "apt-get install python3-venv"
fi
echo "installing the dependencies of requirements.lock" >&2
install_built plyvel leveldb/db.h LevelDB libleveldb-dev
install_built fastecdsa gmp.h GMP libgmp-dev
.venv/bin/pip install --quiet -r requirements.lock
# libp2p needs trio-typing, whose stubs of an older trio would hide trio's own types from mypy.
rm -rf .venv/lib/python3.*/site-packages/trio-stubs
.venv/bin/pip install --quiet --no-deps --no-build-isolation --editable .
touch .venv/installed
