"""Which windows of this node came from peers: known durably before any of them is used.

Whoever computed a window may sign it, nobody else. A window that came is found by its tokens
from then on, as one that was computed here, whatever happens to gliad; so that it is a peer's,
and who attests it, is written first. Rows of the published index: see spec/12-published.md.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from glia.graph.ids import WindowId
from glia.graph.neuron import NeuronId
from glia.store.index import Change
from glia.store.loose import BEGUN_ANEW, LooseIndex
from glia.store.published_rows import ASIDE, FOREIGN, aside_prefix, foreign_key, last_name

_PART = 4096  # rows read at once


class Looked(IntEnum):
    """How far a window that came was looked at. The numbers are in every row."""

    EXPECTED = 0  # it may have come
    CAME = 1  # not yet
    CHECKED = 2  # it passed the checks that each one must
    CONDEMNED = 3  # it is false, or a liar attests it, or it follows such a window


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a window came from.

    Attributes:
        signer: who attests it, None where nothing says it; of a condemned one, who lied.
    """

    looked: Looked
    signer: NeuronId | None = None

    def encode(self) -> bytes:
        """The row's bytes."""
        return bytes([self.looked]) + (self.signer or b"")


class Foreign:
    """Their names. Thread-safe; blocking, as Published is. Args: lock: of writing the index."""

    def __init__(self, index: LooseIndex, lock: threading.Lock) -> None:
        self._index, self._lock = index, lock
        self._coming = Counter[WindowId]()

    def expect(
        self,
        window_ids: Collection[WindowId],
        signers: Mapping[WindowId, NeuronId] | None = None,
    ) -> None:
        """These may come from now on, until as many `settle`. Raises: StoreFull, StoreBroken.

        Args: signers: who attests them. Of what came before it stays who did then.
        """
        by = signers or {}
        with self._lock:
            new = [name for name, origin in self._origins(window_ids).items() if origin is None]
            rows = {name: Origin(Looked.EXPECTED, by.get(name)) for name in new}
            self._write(rows, sync=True)
            self._coming.update(window_ids)

    def settle(self, window_ids: Collection[WindowId], came: Collection[WindowId]) -> None:
        """Of these no more come; those that did not are whose they are.

        Args: came: of these, what became windows of this node.
        Raises: as `expect`; then the rest is taken for a peer's.
        """
        with self._lock:
            self._coming.subtract(window_ids)
            for name in window_ids:
                if not self._coming[name]:
                    del self._coming[name]
            origins = self._origins(set(window_ids))
            rows: dict[WindowId, Origin | None] = {}
            for name, origin in origins.items():
                is_open = origin is None or origin.looked is Looked.EXPECTED
                if name in came and is_open:
                    rows[name] = Origin(Looked.CAME, origin.signer if origin else None)
                elif origin is not None and is_open and name not in self._coming:
                    rows[name] = None
            self._write(rows)

    def sweep(self, is_here: Callable[[WindowId], bool]) -> None:
        """Forget those that are here no more: who computes them again may sign them. What is
        condemned stays so; nothing is put aside that is not here. Raises: as `expect`."""
        with self._lock:
            gone = [n for n in self._names() if n not in self._coming and not is_here(n)]
            origins = self._origins(gone)
            is_kept = {n for n, each in origins.items() if each and each.looked is Looked.CONDEMNED}
            self._write({name: None for name in gone if name not in is_kept})
            self._lift(lambda name: name not in self._coming and not is_here(name))

    def doubt(self, here: Callable[[], Iterable[WindowId]]) -> int:
        """After a damage nothing says whose windows are: any that are here may be a peer's.

        Args: here: all there are; asked only then.
        Returns: how many these are. Raises: as `expect`.
        """
        if self._index.get(BEGUN_ANEW) is None:
            return 0
        names = list(here())
        with self._lock:
            came = Origin(Looked.CAME).encode()
            rows: list[Change] = [(foreign_key(name), came) for name in (*names, *self._coming)]
            self._index.write([*rows, (BEGUN_ANEW, None)], sync=True)
        return len(names)

    def flags(self, window_ids: Sequence[WindowId]) -> list[bool]:
        """Whether each came from a peer, or may have. Raises: StoreBroken."""
        origins = self._origins(window_ids)
        return [origins[name] is not None for name in window_ids]

    # -- what they proved to be ---------------------------------------------------------------

    def origins(self, window_ids: Iterable[WindowId]) -> dict[WindowId, Origin]:
        """Those of these that came from peers. Raises: StoreBroken."""
        found = self._origins(window_ids)
        return {name: origin for name, origin in found.items() if origin is not None}

    def all(self) -> dict[WindowId, Origin]:
        """Every one. Raises: StoreBroken."""
        names = self._names()
        found: dict[WindowId, Origin] = {}
        for start in range(0, len(names), _PART):
            found.update(self.origins(names[start : start + _PART]))
        return found

    def checked(self, window_ids: Collection[WindowId]) -> None:
        """They passed the checks; after a crash that may be forgotten. Raises: as `expect`."""
        with self._lock:
            origins = self.origins(window_ids)
            self._write(
                {
                    name: Origin(Looked.CHECKED, origin.signer)
                    for name, origin in origins.items()
                    if origin.looked is not Looked.CONDEMNED
                }
            )

    def condemn(self, window_ids: Collection[WindowId], liar: NeuronId | None) -> None:
        """They are not to be used, durably. Args: liar: whose fault that is, if it is proven.

        Raises: as `expect`.
        """
        with self._lock:
            self._write(dict.fromkeys(window_ids, Origin(Looked.CONDEMNED, liar)), sync=True)

    def acquit(self, window_ids: Collection[WindowId]) -> None:
        """This node computed the same: they are its own. Raises: as `expect`."""
        with self._lock:
            self._write(dict.fromkeys(window_ids))
            self._lift(set(window_ids).__contains__)

    # -- what the user does not take -----------------------------------------------------------

    def put_aside(self, window_ids: Collection[WindowId], neuron: NeuronId) -> None:
        """They are not to be used until `take_again`, durably. Raises: as `expect`.

        Args: neuron: it attests them, or what they follow.
        """
        with self._lock:
            prefix = aside_prefix(neuron)
            self._index.write([(prefix + name, b"") for name in window_ids], sync=True)

    def take_again(self, neuron: NeuronId) -> dict[WindowId, Origin | None]:
        """Put nothing aside for a neuron's sake. Raises: as `expect`.

        Returns: what may be used again, and where it came from: not what is condemned, or still
            put aside for another's.
        """
        with self._lock:
            keys = self._index.keys(aside_prefix(neuron))
            self._index.write([(key, None) for key in keys], sync=True)
            still = self.aside()
            names = [WindowId(last_name(key)) for key in keys]
            origins = self._origins(name for name in names if name not in still)
        return {
            name: origin
            for name, origin in origins.items()
            if origin is None or origin.looked is not Looked.CONDEMNED
        }

    def aside(self) -> set[WindowId]:
        """All that is put aside. Raises: StoreBroken."""
        return {WindowId(last_name(key)) for key in self._index.keys(ASIDE)}

    def _lift(self, is_one: Callable[[WindowId], bool]) -> None:
        """Put these aside no more, for whose sake it was."""
        keys = [key for key in self._index.keys(ASIDE) if is_one(WindowId(last_name(key)))]
        if keys:
            self._index.write([(key, None) for key in keys], sync=False)

    def _names(self) -> list[WindowId]:
        return [WindowId(last_name(key)) for key in self._index.keys(FOREIGN)]

    def _origins(self, window_ids: Iterable[WindowId]) -> dict[WindowId, Origin | None]:
        names = list(window_ids)
        rows = self._index.get_many(list(map(foreign_key, names)))
        return dict(zip(names, map(_decode, rows), strict=True))

    def _write(self, rows: Mapping[WindowId, Origin | None], *, sync: bool = False) -> None:
        """Where it is not synced, after a crash it may be undone: then more is a peer's."""
        if rows:
            encoded = [
                (foreign_key(name), origin.encode() if origin is not None else None)
                for name, origin in rows.items()
            ]
            self._index.write(encoded, sync=sync)


def _decode(row: bytes | None) -> Origin | None:
    if row is None:
        return None
    signer = NeuronId(row[1:]) if len(row) > 1 else None
    return Origin(Looked(row[0]), signer)
