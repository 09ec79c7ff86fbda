"""`python -m simulations.canonical.child TOKENS THREADS OUT [PIECE]`: one run, in its own process.

Writes what it computed to OUT: by storage, K and V rounded and not, of all layers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from glia.engine.canonical import CanonicalModel
from glia.model.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "smollm2"
STORAGE = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
_KEEP_BYTES = 4 << 30


def text_tokens(num_tokens: int) -> list[int]:
    """The first tokens of the front page, as the model's own tokenizer has them."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return Tokenizer.load(MODEL).encode(text)[:num_tokens]


def compute(model: CanonicalModel, tokens: Sequence[int], piece: int) -> dict[str, torch.Tensor]:
    """By storage: rounded, and "... wide" before that, [L, T, G, 2 * D]."""
    found = {}
    for name, storage in STORAGE.items():
        done = model.recompute([], tokens, storage, unrounded=True, piece_tokens=piece)
        found[name] = torch.stack(done.rows)
        found[f"{name} wide"] = torch.stack(done.unrounded or ())
    return found


def main(argv: Sequence[str]) -> int:
    """Compute once."""
    num_tokens, threads, out, *piece = argv
    torch.set_num_threads(int(threads))
    model = CanonicalModel.open(MODEL, most_bytes=_KEEP_BYTES)
    tokens = text_tokens(int(num_tokens))
    save_file(compute(model, tokens, int(piece[0]) if piece else 512), out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
