"""A real gliad that treats peers badly: `python -m tests.bad_gliad KIND`, then gliad's words.

It is daemon.process with another door to the outside. A file `turned` in its data dir says that
it did what its kind is.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import daemon.publishing
from daemon.egress import Egress
from daemon.process import main
from glia.graph.ids import BlockId, ModelId, PrefixKey, ProfileId, WindowId, genesis_window
from glia.graph.window import WindowRecord, parse_window
from p2p.offer import Candidate

NUM_GOOD = 100  # blocks, before it is bad
OTHER = ModelId(b"\x5a" * 32)
SIGNALS = {"stalls": signal.SIGSTOP, "killed": signal.SIGKILL}


class BadEgress(Egress):
    """What it offers; `kind` is one of SIGNALS, or as `match` and `block` have it, or honest."""

    kind = ""
    data_dir = Path()
    num_blocks = 0
    model_id = b""

    def match(
        self, model_id: ModelId, profile_id: ProfileId, keys: Sequence[tuple[int, PrefixKey]]
    ) -> list[Candidate]:
        self.model_id = model_id
        found = super().match(model_id, profile_id, keys)
        if self.kind != "other chain":
            return found
        self._turn()
        return [replace(each, tip=self._chain(each)[-1].window_id) for each in found]

    def records(self, tip: WindowId, num_windows: int, start: int) -> list[bytes]:
        chain = self._chains.get(tip)
        if chain is None:
            return super().records(tip, num_windows, start)
        return [record.encoding for record in chain[::-1][start:]]

    def block(self, block_id: BlockId) -> bytes | None:
        data = super().block(block_id)
        self.num_blocks += data is not None
        is_bad = self.kind in (*SIGNALS, "flipped", "other blocks")
        if data is None or not is_bad or self.num_blocks <= NUM_GOOD:
            return data
        self._turn()
        if self.kind in SIGNALS:
            os.kill(os.getpid(), SIGNALS[self.kind])
        if self.kind == "other blocks":
            return data.replace(self.model_id, OTHER)
        return data[:-1] + bytes([data[-1] ^ 1])

    _chains: dict[WindowId, list[WindowRecord]] = {}  # noqa: RUF012 -- there is one

    def _chain(self, candidate: Candidate) -> list[WindowRecord]:
        """A chain of another model, of the same tokens and blocks, in which every name holds."""
        encodings: list[bytes] = []
        while len(encodings) < candidate.num_windows:
            encodings += super().records(candidate.tip, candidate.num_windows, len(encodings))
        chain: list[WindowRecord] = []
        for record in map(parse_window, encodings[::-1]):
            prev = chain[-1].window_id if chain else genesis_window(OTHER, record.profile_id)
            chain.append(replace(record, model_id=OTHER, prev=prev))
        self._chains[chain[-1].window_id] = chain
        return chain

    def _turn(self) -> None:
        (self.data_dir / "turned").touch()


if __name__ == "__main__":
    BadEgress.kind = sys.argv[1]
    BadEgress.data_dir = Path(sys.argv[sys.argv.index("--data-dir") + 1])
    daemon.publishing.Egress = BadEgress  # type: ignore[misc]
    sys.exit(main(sys.argv[2:]))
