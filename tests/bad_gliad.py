"""A real gliad that treats peers badly: `python -m tests.bad_gliad`, then gliad's words.

It is daemon.process with another door to the outside. What it does stands in the file `kind` of
its data dir, where there is one; the file `turned` says that it did it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
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


def _flip(data: memoryview, _: bytes) -> None:
    data[-1] ^= 1


def _rename(data: memoryview, model_id: bytes) -> None:
    at = bytes(data).index(model_id)
    data[at : at + len(model_id)] = OTHER


SPOILERS: dict[str, Callable[[memoryview, bytes], None]] = {
    "flipped": _flip,
    "other blocks": _rename,
    "stalls": lambda *_: os.kill(os.getpid(), signal.SIGSTOP),
    "killed": lambda *_: os.kill(os.getpid(), signal.SIGKILL),
}


class BadEgress(Egress):
    """What it offers."""

    kind = ""
    data_dir = Path()
    num_blocks = 0  # since it is of this kind
    model_id = b""
    chains: dict[WindowId, list[WindowRecord]] = {}  # noqa: RUF012 -- there is one

    def match(
        self, model_id: ModelId, profile_id: ProfileId, keys: Sequence[tuple[int, PrefixKey]]
    ) -> list[Candidate]:
        self.model_id = model_id
        found = super().match(model_id, profile_id, keys)
        if self._kind() != "other chain":
            return found
        self._turn()
        return [replace(each, tip=self._chain(each)[-1].window_id) for each in found]

    def records(self, tip: WindowId, num_windows: int, start: int) -> list[bytes]:
        chain = self.chains.get(tip)
        if chain is None:
            return super().records(tip, num_windows, start)
        return [record.encoding for record in chain[::-1][start:]]

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        kind, found = self._kind(), super().read_blocks(block_ids, into)
        for data in found:
            self.num_blocks += data is not None
            if data is not None and self.num_blocks > NUM_GOOD and kind in SPOILERS:
                self._turn()
                SPOILERS[kind](data, self.model_id)
        return found

    def _chain(self, candidate: Candidate) -> list[WindowRecord]:
        """A chain of another model, of the same tokens and blocks, in which every name holds."""
        encodings: list[bytes] = []
        while len(encodings) < candidate.num_windows:
            encodings += super().records(candidate.tip, candidate.num_windows, len(encodings))
        chain: list[WindowRecord] = []
        for record in map(parse_window, encodings[::-1]):
            prev = chain[-1].window_id if chain else genesis_window(OTHER, record.profile_id)
            chain.append(replace(record, model_id=OTHER, prev=prev))
        self.chains[chain[-1].window_id] = chain
        return chain

    def _kind(self) -> str:
        file = self.data_dir / "kind"
        kind = file.read_text() if file.exists() else ""
        if kind != self.kind:
            self.kind, self.num_blocks = kind, 0
        return kind

    def _turn(self) -> None:
        (self.data_dir / "turned").touch()


if __name__ == "__main__":
    BadEgress.data_dir = Path(sys.argv[sys.argv.index("--data-dir") + 1])
    daemon.publishing.Egress = BadEgress  # type: ignore[misc]
    sys.exit(main())
