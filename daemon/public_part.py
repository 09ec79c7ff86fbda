"""The windows of a log that peers may see, and which of them are published. Blocking.

They are found by walking back from a tip, to the first window that is published with the log's
own tokens: its prefix key commits to all of them, so what was published is not walked again.
Nor is what is private behind it, where the last public window is published: the common case,
a public beginning of private turns, costs one look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from glia.errors import MalformedParticle, NotFound
from glia.graph.chain import Get, follows
from glia.graph.ids import (
    ModelId,
    PrefixKey,
    ProfileId,
    WindowId,
    digest,
    genesis_prefix,
    genesis_window,
    next_prefix,
    short,
)
from glia.graph.publishable import public_windows
from glia.graph.tokens import TOKEN_BYTES
from glia.graph.window import WindowRecord
from glia.store.published_reader import PublishedReader
from glia.store.published_rows import PublishedWindow


@dataclass(frozen=True, slots=True)
class Known:
    """A published window, and the tokens up to it by their digest."""

    window_id: WindowId
    num_tokens: int
    block_size: int
    digest: bytes

    def begins(self, tokens: bytes) -> bool:
        """Whether packed tokens begin with these."""
        end = TOKEN_BYTES * self.num_tokens
        return len(tokens) >= end and digest(tokens[:end]) == self.digest

    def is_all_of(self, tokens: bytes) -> bool:
        """Whether there is no whole window more in packed tokens."""
        num_more = len(tokens) // TOKEN_BYTES - self.num_tokens
        return num_more < self.block_size and self.begins(tokens)


@dataclass(frozen=True, slots=True)
class PublicPart:
    """A chain of windows whose tokens are leading public ones of a log.

    Attributes:
        base: the last of them that is published, None where none is.
        new: those after it.
        block_size: 0 where there is no window of the log here.
    """

    base: PublishedWindow | None = None
    new: Sequence[WindowRecord] = ()
    block_size: int = 0

    @property
    def num_published(self) -> int:
        return self.base.num_windows if self.base is not None else 0

    @property
    def num_windows(self) -> int:
        return self.num_published + len(self.new)

    def known(self, tokens: bytes) -> Known | None:
        """What to remember once all of it is published. Args: tokens: the log's, packed."""
        last = self.new[-1] if self.new else self.base
        if last is None:
            return None
        num_tokens = self.block_size * self.num_windows
        ended = digest(tokens[: TOKEN_BYTES * num_tokens])
        return Known(last.window_id, num_tokens, self.block_size, ended)


def find_public_part(
    tips: Iterable[WindowId],
    tokens: bytes,
    get: Get,
    published: PublishedReader,
    known: Known | None,
) -> PublicPart:
    """The longest that one of these tips has and that is still here.

    Args:
        tips: the likeliest first.
        tokens: leading public ones, packed.
        get: what is whole here.
        known: from the last time.
    Raises: StoreBroken.
    """
    log = _Log(tokens, known, published)
    best = PublicPart()
    for tip in tips:
        try:
            found = _walk(tip, log, get)
        except (NotFound, MalformedParticle):
            continue  # evicted, or damaged
        best = max(best, found, key=lambda part: part.num_windows)
        if (best.num_windows + 1) * found.block_size > len(tokens) // TOKEN_BYTES:
            break
    return best


def _walk(tip: WindowId, log: _Log, get: Get) -> PublicPart:
    """Raises: NotFound, MalformedParticle, StoreBroken."""
    above: list[WindowRecord] = []  # from the tip down
    name = tip
    while not above or above[-1].position_start > 0:
        row = log.published.window(name)
        record = row.record() if row is not None else get(name)
        if record is None:
            raise NotFound(f"window {short(name)} is not known here")
        if above and not follows(record, above[-1]):
            raise MalformedParticle(f"window {short(name)}: its successor does not follow it")
        if row is not None and log.leads_to(row, record):
            return PublicPart(row, public_windows(above[::-1], log.tokens), len(record.tokens))
        if not above and (last := log.last_published(record)) is not None:
            return PublicPart(last, (), len(record.tokens))
        above.append(record)
        name = record.before
    first = above[-1]
    if name != genesis_window(first.model_id, first.profile_id):
        raise MalformedParticle(f"window {short(tip)}: its chain does not start at its genesis")
    return PublicPart(None, public_windows(above[::-1], log.tokens), len(first.tokens))


class _Log:
    """Leading tokens of a log; their prefix keys are derived when one is asked for."""

    def __init__(self, tokens: bytes, known: Known | None, published: PublishedReader) -> None:
        self.tokens, self._known, self.published = tokens, known, published
        self._keys: dict[tuple[ModelId, ProfileId], list[PrefixKey]] = {}

    def leads_to(self, row: PublishedWindow, record: WindowRecord) -> bool:
        """Whether all tokens up to a published window are the log's."""
        if TOKEN_BYTES * record.end > len(self.tokens):
            return False
        if self._known is not None and self._known.window_id == row.window_id:
            return self._known.begins(self.tokens)
        keys = self._keys_of(record)
        return row.num_windows <= len(keys) and keys[row.num_windows - 1] == row.prefix_key

    def last_published(self, tip: WindowRecord) -> PublishedWindow | None:
        """The window that ends all whole ones of these tokens, of a tip's class, if published.

        Within a class equal tokens give equal windows: it is the tip's own ancestor.
        """
        keys = self._keys_of(tip)
        for name in self.published.named(keys[-1:]):
            row = self.published.window(name)
            if row is not None and row.record().numerics_class == tip.numerics_class:
                return row
        return None

    def _keys_of(self, record: WindowRecord) -> list[PrefixKey]:
        kind = record.model_id, record.profile_id
        if kind not in self._keys:
            step = TOKEN_BYTES * len(record.tokens)
            key, keys = genesis_prefix(*kind), list[PrefixKey]()
            for at in range(0, len(self.tokens) - step + 1, step):
                key = next_prefix(key, self.tokens[at : at + step])
                keys.append(key)
            self._keys[kind] = keys
        return self._keys[kind]
