"""What a change of the published index comes to: rows to write, over those that are there."""

from __future__ import annotations

from collections.abc import Collection

from glia.errors import MalformedParticle, NotFound
from glia.graph.chain import follows
from glia.graph.ids import WindowId, genesis_prefix, genesis_window, next_prefix, short
from glia.graph.link import Claim, Link, check_link, decode_link
from glia.graph.tokens import pack_tokens
from glia.graph.window import WindowRecord
from glia.store.index import Change
from glia.store.loose import LooseIndex
from glia.store.published_rows import (
    ASIDE,
    COUNTS,
    MAX_PER_KEY,
    Counts,
    PublishedWindow,
    announced_key,
    attested_prefix,
    block_prefix,
    decode_counts,
    decode_number,
    decode_window,
    encode_number,
    foreign_key,
    last_name,
    link_key,
    names_in,
    next_prefix_of,
    prefix_row_key,
    sequence_key,
    signed_key,
    tip_prefix,
    window_key,
)


class Publishing:
    """One change, made under the index's lock. Every method may raise StoreBroken."""

    def __init__(self, index: LooseIndex) -> None:
        self._index = index
        self._rows: dict[bytes, bytes | None] = {}
        self._records: dict[WindowId, WindowRecord] = {}
        self._num_windows, self._num_links = decode_counts(index.get(COUNTS))

    def changes(self) -> list[Change]:
        """The rows, empty where nothing changes."""
        if not self._rows:
            return []
        return [*self._rows.items(), (COUNTS, Counts(self._num_windows, self._num_links).encode())]

    def add(self, record: WindowRecord, hold_until_s: int) -> None:
        """Publish a window that continues a published one, or genesis; a known one stays as it is.

        Raises: NotFound (the window before is not published), MalformedParticle (they do not
            follow each other).
        """
        name = record.window_id
        if self._window(name) is not None:
            return
        before = self._before(record)
        key = before.prefix_key if before else genesis_prefix(record.model_id, record.profile_id)
        row = PublishedWindow(
            window_id=name,
            num_windows=before.num_windows + 1 if before else 1,
            hold_until_s=hold_until_s,
            prefix_key=next_prefix(key, pack_tokens(record.tokens)),
            encoding=record.encoding,
        )
        self._records[name] = record
        self._rows[window_key(name)] = row.encode()
        together = prefix_row_key(row.prefix_key)
        names = [*names_in(self._get(together)), name]
        self._rows[together] = b"".join(names[-MAX_PER_KEY:])
        for block_id in record.blocks:
            self._rows[block_prefix(block_id) + name] = b""
        self._rows[next_prefix_of(record.prev) + name] = b""
        self._rows[tip_prefix(record.model_id) + record.prev] = None
        self._rows[tip_prefix(record.model_id) + name] = b""
        self._num_windows += 1

    def attest(self, link: Link) -> None:
        """Keep a link whose windows are published; what its signer signed before is kept once.

        Raises: NotFound (a window is not published), MalformedParticle (the link disagrees
            with its windows).
        """
        once = signed_key(link.signer, link.claim)
        if self._get(once) is not None:
            return
        records = self._attested(link.claim)
        root = genesis_prefix(link.claim.model_id, link.claim.profile_id)
        base = self._window(link.claim.base)
        check_link(link.claim, base.prefix_key if base else root, records)
        self._rows[once] = link.link_id
        self._rows[link_key(link.link_id)] = link.encoding
        for record in records:
            self._rows[attested_prefix(record.window_id) + link.link_id] = b""
        counted = sequence_key(link.signer)
        largest = max(link.sequence, decode_number(self._get(counted)))
        self._rows[counted] = encode_number(largest)
        self._num_links += 1

    def take_back(self, window_ids: Collection[WindowId]) -> list[WindowId]:
        """Remove windows that nothing continues but others of them, with the links to them."""
        rows = [row for name in set(window_ids) if (row := self._window(name)) is not None]
        gone: list[WindowId] = []
        for row in sorted(rows, key=lambda row: (-row.num_windows, row.window_id)):
            if not self._continued(row.window_id):
                self._take(row)
                gone.append(row.window_id)
        return gone

    def forget_origins(self, window_ids: Collection[WindowId]) -> None:
        """Remove what is said of where windows came from that are not published, or no more."""
        for name in window_ids:
            if self._window(name) is None and self._get(foreign_key(name)) is not None:
                self._rows[foreign_key(name)] = None
        names = set(window_ids)
        for key in self._index.keys(ASIDE):
            if last_name(key) in names:
                self._rows[key] = None

    def _take(self, row: PublishedWindow) -> None:
        name, record = row.window_id, self._record(row)
        for key in self._index.keys(attested_prefix(name)):
            self._take_link(last_name(key))
        together = prefix_row_key(row.prefix_key)
        names = [other for other in names_in(self._get(together)) if other != name]
        self._rows[together] = b"".join(names) or None
        for block_id in record.blocks:
            self._rows[block_prefix(block_id) + name] = None
        self._rows[next_prefix_of(record.prev) + name] = None
        self._rows[tip_prefix(record.model_id) + name] = None
        self._rows[window_key(name)] = None
        self._rows[announced_key(name)] = None
        if row.num_windows > 1 and not self._continued(record.prev):
            self._rows[tip_prefix(record.model_id) + record.prev] = b""
        self._num_windows -= 1

    def _take_link(self, link_id: bytes) -> None:
        data = self._get(link_key(link_id))
        if data is None:
            return  # with another window that it attests
        link = decode_link(data)
        for record in self._attested(link.claim):
            self._rows[attested_prefix(record.window_id) + link_id] = None
        self._rows[link_key(link_id)] = None
        self._rows[signed_key(link.signer, link.claim)] = None
        self._num_links -= 1

    def _continued(self, window_id: WindowId) -> bool:
        keys = self._index.keys(next_prefix_of(window_id))
        return any(self._rows.get(key, b"") is not None for key in keys)

    def _before(self, record: WindowRecord) -> PublishedWindow | None:
        if record.prev == genesis_window(record.model_id, record.profile_id):
            if record.position_start:
                raise MalformedParticle("a window after genesis does not start at 0")
            return None
        before = self._window(record.prev)
        if before is None:
            raise NotFound(f"window {short(record.prev)} is not published")
        if not follows(self._record(before), record):
            raise MalformedParticle(f"window {short(record.window_id)} does not follow its own")
        return before

    def _attested(self, claim: Claim) -> list[WindowRecord]:
        tip = self._window(claim.tip)
        if tip is not None and tip.num_windows != claim.num_windows:
            raise MalformedParticle(f"window {short(claim.tip)} is not where a link puts it")
        records: list[WindowRecord] = []
        name = claim.tip
        for _ in range(claim.num_windows - claim.num_before):
            row = self._window(name)
            if row is None:
                raise NotFound(f"window {short(name)} is not published")
            records.append(self._record(row))
            name = records[-1].prev
        return records[::-1]

    def _record(self, row: PublishedWindow) -> WindowRecord:
        record = self._records.get(row.window_id)
        if record is None:
            record = self._records[row.window_id] = row.record()
        return record

    def _window(self, window_id: WindowId) -> PublishedWindow | None:
        value = self._get(window_key(window_id))
        return decode_window(window_id, value) if value is not None else None

    def _get(self, key: bytes) -> bytes | None:
        return self._rows[key] if key in self._rows else self._index.get(key)
