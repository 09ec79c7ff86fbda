"""What neurons signed of canonical windows: who signs two that contradict each other is found out.

Rows of the published index (spec/12-published.md). Thread-safe, blocking; raises StoreBroken and
StoreFull as Published does. Of links so many are kept; the oldest go first.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from glia.graph.equivocation import (
    Equivocation,
    Statement,
    equivocation,
    parse_equivocation,
    promise_key,
    statement,
)
from glia.graph.ids import WindowId
from glia.graph.link import LINK_BYTES, Link, decode_link
from glia.graph.neuron import NeuronId
from glia.graph.numerics import CANONICAL
from glia.graph.window import WindowRecord, parse_window
from glia.store.index import Change
from glia.store.loose import LooseIndex
from glia.store.published_rows import decode_number, encode_number

MAX_SPANS = 1024  # of 16 windows each some 20 MB
MAX_SPANS_BYTES = 32 * 2**20  # a link may attest sixteen times as many
MAX_EVIDENCE = 256
_PROMISE, _SPAN, _ORDER, _WINDOW, _EVIDENCE, _LAST = b"m", b"y", b"o", b"w", b"e", b"x"
_LENGTH_BYTES = 4


class Promises:
    """Args: lock: of writing the index."""

    def __init__(
        self,
        index: LooseIndex,
        lock: threading.Lock,
        max_spans: int = MAX_SPANS,
        max_bytes: int = MAX_SPANS_BYTES,
    ) -> None:
        self._index, self._lock = index, lock
        self._max, self._max_bytes = max_spans, max_bytes

    def take(self, link: Link, span: Sequence[WindowRecord]) -> list[Equivocation]:
        """What a link says, kept; what contradicts what its signer said before, kept as well.

        Args: span: all windows that it attests, in order: it was held against them.
        Returns: those contradictions that are new.
        """
        with self._lock:
            if self._index.get(_SPAN + link.link_id) is not None:
                return []
            own = [each for each in span if each.numerics_class == CANONICAL]
            keys = [_PROMISE + promise_key(link.signer, each) for each in own]
            known = self._index.get_many(keys)
            found: list[Equivocation] = []
            rows: list[Change] = []
            for key, record, before in zip(keys, own, known, strict=True):
                if before is None:
                    rows.append((key, link.link_id + record.window_id))
                elif before[32:] != record.window_id:
                    found += self._contradiction(before, statement(link, span, record))
            num, encoding = decode_number(self._index.get(_LAST)) + 1, _encode(link, span)
            size = len(encoding).to_bytes(_LENGTH_BYTES, "little")
            rows += [
                (_SPAN + link.link_id, encoding),
                (_ORDER + num.to_bytes(8, "big"), link.link_id + size),
                (_LAST, encode_number(num)),
                *((_WINDOW + each.window_id + link.link_id, b"") for each in own),
            ]
            new = [each for each in found if self._index.get(_evidence_key(each)) is None]
            room = MAX_EVIDENCE - len(self._index.keys(_EVIDENCE))
            rows += [(_evidence_key(each), each.encoding) for each in new[: max(0, room)]]
            self._index.write([*rows, *self._oldest(len(encoding))], sync=bool(new))
        return new

    def evidence(self) -> Iterator[Equivocation]:
        """All there is, read anew and verified."""
        for key in self._index.keys(_EVIDENCE):
            data = self._index.get(key)
            if data is not None:
                yield parse_equivocation(data)

    def counts(self) -> Counter[NeuronId]:
        """How many there are of each neuron."""
        return Counter(NeuronId(key[1:33]) for key in self._index.keys(_EVIDENCE))

    def changes_to_forget(self, window_ids: Collection[WindowId]) -> list[Change]:
        """What removes all that has these windows' tokens; the evidence, too."""
        links = {key[-32:] for name in window_ids for key in self._index.keys(_WINDOW + name)}
        rows: list[Change] = []
        for link_id in links:
            rows += self._gone(link_id)
        names = {*window_ids}
        rows += [
            (_evidence_key(each), None)
            for each in self.evidence()
            if any(record.window_id in names for record in _all_of(each))
        ]
        if links:
            orders = self._index.keys(_ORDER)
            held = zip(orders, self._index.get_many(orders), strict=True)
            rows += [(key, None) for key, value in held if value and value[:32] in links]
        return rows

    def _contradiction(self, before: bytes, new: Statement) -> list[Equivocation]:
        """With what is kept of a promise; nothing where that is gone."""
        data = self._index.get(_SPAN + before[:32])
        if data is None:
            return []
        link, span = _decode(data)
        old = next(each for each in span if each.window_id == before[32:])
        return [equivocation(statement(link, span, old), new)]

    def _oldest(self, num_bytes: int) -> list[Change]:
        """What makes room for one more, of so many bytes."""
        orders = self._index.keys(_ORDER)
        values = [value or b"" for value in self._index.get_many(orders)]
        sizes = [int.from_bytes(value[32:], "little") for value in values]
        num_left, left_bytes = len(orders) + 1, sum(sizes) + num_bytes
        rows: list[Change] = []
        for key, value, size in zip(orders, values, sizes, strict=True):
            if num_left <= self._max and left_bytes <= self._max_bytes:
                break
            rows += [(key, None), *self._gone(value[:32])]
            num_left, left_bytes = num_left - 1, left_bytes - size
        return rows

    def _gone(self, link_id: bytes) -> list[Change]:
        data = self._index.get(_SPAN + link_id)
        if data is None:
            return []
        link, span = _decode(data)
        rows: list[Change] = [(_SPAN + link_id, None)]
        for record in span:
            key = _PROMISE + promise_key(link.signer, record)
            if self._index.get(key) == link_id + record.window_id:
                rows.append((key, None))
            rows.append((_WINDOW + record.window_id + link_id, None))
        return rows


def _evidence_key(found: Equivocation) -> bytes:
    return _EVIDENCE + found.signer + promise_key(found.signer, found.one.window)


def _all_of(found: Equivocation) -> Iterable[WindowRecord]:
    return (*found.one.records, *found.other.records)


def _encode(link: Link, span: Sequence[WindowRecord]) -> bytes:
    return link.encoding + b"".join(
        len(each.encoding).to_bytes(_LENGTH_BYTES, "little") + each.encoding for each in span
    )


def _decode(data: bytes) -> tuple[Link, list[WindowRecord]]:
    """What `_encode` gave."""
    link, at = decode_link(data[:LINK_BYTES]), LINK_BYTES
    span: list[WindowRecord] = []
    while at < len(data):
        length = int.from_bytes(data[at : at + _LENGTH_BYTES], "little")
        at += _LENGTH_BYTES
        span.append(parse_window(data[at : at + length]))
        at += length
    return link, span


def signers_of(found: Iterable[Equivocation]) -> list[NeuronId]:
    """Whose they are, each once."""
    return list(dict.fromkeys(each.signer for each in found))
