"""Writes trace.json: `python -m tests.vectors.make_trace`. Frozen.

Two traces of the neuron whose seed is BLAKE3 of "neuron": of 40 tokens with three answers, one
of which nobody knows how it was chosen, and windows of two classes; and of 3 tokens without a
window.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glia.graph.ids import WindowId
from glia.graph.neuron import Signer
from glia.graph.sampling import Sampling
from glia.graph.trace import Answer, ClassRun, SignedTrace, Trace, sign_trace
from tests.vectors import make

FILE = Path(__file__).with_name("trace.json")
SIGNER = Signer(make.seed("neuron", 32))
_US = 1_800_000_000_000_000

LONG = Trace(
    model_id=make.MODEL,
    profile_id=make.SMALL.profile_id,
    block_size=16,
    time_us=_US,
    model="smollm2",
    dtype="bfloat16",
    tokens=make.tokens_of("log", 40),
    answers=(
        Answer(5, 9, Sampling(0.75, 0.5, 40, 2**63 - 1)),
        Answer(9, 10, None),
        Answer(33, 40, Sampling()),
    ),
    windows=tuple(WindowId(make.seed(f"tip {number}", 32)) for number in range(2)),
    runs=(ClassRun("canonical", 1), ClassRun("native:tile128,x", 1)),
)
SHORT = Trace(
    model_id=make.MODEL,
    profile_id=make.SMALL.profile_id,
    block_size=16,
    time_us=_US + 1,
    model="smollm2",
    dtype="float32",
    tokens=(1, 2, 3),
    answers=(Answer(1, 3, Sampling()),),
    windows=(),
    runs=(ClassRun("canonical", 0),),
)
TRACES = {"long": LONG, "short": SHORT}


def traces() -> dict[str, SignedTrace]:
    """Both, signed."""
    return {name: sign_trace(trace, SIGNER) for name, trace in TRACES.items()}


def build() -> dict[str, Any]:
    """Both, in hex."""
    return {
        "_comment": " ".join((__doc__ or "").split("\n\n")[1].split()),
        "traces": {name: signed.encoding.hex() for name, signed in traces().items()},
    }


if __name__ == "__main__":
    FILE.write_text(make.render(build()))
