"""Writes checkpoint.json: `python -m tests.vectors.make_checkpoint`. Frozen but for what is
drawn anew each time (the key that a checkpoint is encrypted with).

The Soul whose secret is BLAKE3 of "soul"; a checkpoint of two of the conversations of
conversation.json; a claim of them; the secret, locked with the passphrase "three small words".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glia.graph.checkpoint import Checkpoint, names_of, seal_checkpoint
from glia.graph.claim import Claim, sign_claim
from glia.graph.conversation import Begin
from glia.graph.journal import begin_file, id_of
from glia.graph.neuron import Signer
from glia.graph.soul import Soul, lock_secret
from tests.vectors import make
from tests.vectors.make_conversation import FILES

FILE = Path(__file__).with_name("checkpoint.json")
SECRET = make.seed("soul", 32)
SOUL = Soul(SECRET)
HOLDER = Signer(make.seed("neuron", 32)).neuron
WORDS = "three small words"
_US = 1_800_000_000_000_000
_BEGINS = [record for name in ("talk", "fork") if isinstance(record := FILES[name][0], Begin)]

CHECKPOINT = Checkpoint(
    epoch=1,
    sequence=7,
    time_us=_US,
    lease_us=_US + 1,
    holder=HOLDER,
    models=names_of(_BEGINS),
    files=tuple(begin_file(FILES[name])[0] for name in ("talk", "fork")),
)
CLAIM = Claim(SOUL.name, 2, 7, _US + 2, HOLDER, tuple(sorted(map(id_of, _BEGINS))))


def build() -> dict[str, Any]:
    """All of it, in hex."""
    return {
        "_comment": " ".join((__doc__ or "").split("\n\n")[1].split()),
        "secret": SECRET.hex(),
        "soul": SOUL.name.hex(),
        "checkpoint": seal_checkpoint(CHECKPOINT, SOUL).hex(),
        "claim": sign_claim(CLAIM, SOUL).hex(),
        "locked": lock_secret(SECRET, WORDS, make.seed("salt", 16)).hex(),
    }


if __name__ == "__main__":
    FILE.write_text(make.render(build()))
