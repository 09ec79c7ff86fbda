"""Attention by the tile schedule: bytes that do not depend on how a prompt was cut.

    T new tokens, H query heads, G kv heads, R = H / G, D head_dim, KL key length

Queries run by aligned tile of 128 positions; the key length is the tile's end and the
rest of the causal triangle is masked, so it is a function of the position alone. The
R query heads of a kv head are packed as rows of one product. How a product's rows are
summed depends on the row count only when few rows are left over; measured equal with
a multiple of 4 rows (two identical queries are not enough where R is 1), and with more
than one block of 32 rows where there is one kv head (a lone block is split across threads).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import torch

from glia.kv.kernel import KEY_TILE, Kernel, kernel_class
from glia.kv.pool import Dispatch, Pool
from glia.kv.rotary import Rotary, rotate

TILE = KEY_TILE
ROW_MULTIPLE = 4
LONE_HEAD_ROWS = 36
_PROBE_TILES = (1, 9, 33)
_PROBE_PIECES = (
    (0, 1),
    (1, 2),
    (63, 64),
    (126, 127),
    (127, 128),
    (3, 5),
    (7, 12),
    (40, 57),
    (60, 128),
)

Read = Callable[[int], tuple[torch.Tensor, torch.Tensor]]
"""K and V of the first so many positions, rotated: [G, KL, D] each."""


def schedule(dtype: torch.dtype, device: torch.device) -> str:
    """The name of what is computed how: another name, other bits."""
    suffix = kernel_class(dtype, device).suffix
    return f"tile{TILE}.row{ROW_MULTIPLE}.lone{LONE_HEAD_ROWS}{suffix}"


@dataclass(frozen=True, slots=True)
class LayerHeads:
    """What attention needs to know about one layer.

    Attributes:
        num_heads: H.
        kv_heads: G.
        head_dim: D.
        scale: of the scores.
        rotary: None for a layer without positions.
    """

    num_heads: int
    kv_heads: int
    head_dim: int
    scale: float
    rotary: Rotary | None


class LayerAttention(Protocol):
    """What a model's layers attend by; they are called in order."""

    @property
    def num_tokens(self) -> int:
        """T of the forward under way."""

    def attend(self, layer: int, qkv: torch.Tensor, out: torch.Tensor) -> None:
        """One layer's attention.

        Args:
            qkv: [T, H + 2 * G, D], unrotated; may be changed in place.
            out: [T, H * D], written.
        """


class TileAttention:
    """The tile schedule for layers of one shape; owns the packed-query buffer."""

    def __init__(self, heads: LayerHeads, dtype: torch.dtype, device: torch.device) -> None:
        self._kv_heads, self._dim = heads.kv_heads, heads.head_dim
        self._per_head = heads.num_heads // heads.kv_heads
        rows = TILE * self._per_head + LONE_HEAD_ROWS
        self._packed = torch.zeros(self._kv_heads, rows, self._dim, dtype=dtype, device=device)
        kernel = kernel_class(dtype, device)
        self._kernel: Kernel = kernel(rows, self._per_head, heads.scale, dtype, device)

    @property
    def reads_dense(self) -> bool:
        """Whether keys and values are best given without gaps between heads."""
        return self._kernel.reads_dense

    def _num_rows(self, num_queries: int) -> int:
        rows = -(-num_queries * self._per_head // ROW_MULTIPLE) * ROW_MULTIPLE
        return max(rows, LONE_HEAD_ROWS) if self._kv_heads == 1 else rows

    def attend(self, q: torch.Tensor, read: Read, position: int, out: torch.Tensor) -> None:
        """Causal attention of T queries from `position` on.

        Args:
            q: [T, H, D], rotated.
            out: [T, H * D], written.
        """
        for first, last in _tiles(position, q.shape[0]):
            self._tile(q[first:last], read, position + first, out[first:last])

    def _tile(self, q: torch.Tensor, read: Read, position: int, out: torch.Tensor) -> None:
        """Queries of one tile: [n, H, D] to [n, H * D]."""
        num_queries, place = q.shape[0], position % TILE
        used, rows = num_queries * self._per_head, self._num_rows(num_queries)
        by_query = (num_queries, self._kv_heads, self._per_head, self._dim)
        by_head = (self._kv_heads, num_queries, self._per_head, self._dim)
        self._packed[:, :used].view(by_head).copy_(q.view(by_query).transpose(0, 1))
        keys, values = read(position - place + TILE)
        found = self._kernel(self._packed[:, :rows], keys, values, place * self._per_head)
        out.view(by_query).copy_(found[:, :used].view(by_head).transpose(0, 1))

    def wipe(self) -> None:
        """Forget the last queries."""
        self._packed.zero_()

    def is_exact(self) -> bool:
        """Whether pieces of a tile have the bits of the whole tile, on seeded random data.

        Pieces on one thread, too: that is how few rows may be computed.
        """
        random = torch.Generator().manual_seed(1)
        like = self._packed
        num_heads = self._kv_heads * self._per_head
        length = _PROBE_TILES[-1] * TILE

        def draw(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=random).to(like.device, like.dtype)

        q = draw(TILE, num_heads, self._dim)
        keys, values = (draw(self._kv_heads, length, self._dim) for _ in range(2))

        def read(length: int) -> tuple[torch.Tensor, torch.Tensor]:
            return keys[:, :length], values[:, :length]

        num_threads = torch.get_num_threads()
        whole, piece = (like.new_empty(TILE, num_heads * self._dim) for _ in range(2))
        try:
            for start in (tiles * TILE - TILE for tiles in _PROBE_TILES):
                self.attend(q, read, start, whole)
                for (first, last), threads in product(_PROBE_PIECES, {1, num_threads}):
                    torch.set_num_threads(threads)
                    self.attend(q[first:last], read, start + first, piece[first:last])
                    if not torch.equal(piece[first:last], whole[first:last]):
                        return False
                torch.set_num_threads(num_threads)
        finally:
            torch.set_num_threads(num_threads)
        return True


def tiles_of(
    layers: Sequence[LayerHeads], dtype: torch.dtype, device: torch.device
) -> list[TileAttention]:
    """One for each layer; layers of one shape share theirs."""
    shared: dict[tuple[int, int, int, float], TileAttention] = {}
    found = []
    for heads in layers:
        key = (heads.num_heads, heads.kv_heads, heads.head_dim, heads.scale)
        if key not in shared:
            shared[key] = TileAttention(heads, dtype, device)
        found.append(shared[key])
    return found


def _tiles(position: int, num_tokens: int) -> Iterator[tuple[int, int]]:
    """(first, last) token numbers of each aligned tile."""
    first = 0
    while first < num_tokens:
        last = min(num_tokens, first + TILE - (position + first) % TILE)
        yield first, last
        first = last


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one sequence in a forward.

    Attributes:
        dispatch: where they stand in the pool.
        raw: per layer [T, G, 2 * D]; receives unrotated K and V.
    """

    dispatch: Dispatch
    raw: Sequence[torch.Tensor]


class PooledAttention:
    """Attention over the pool: stores what is new, attends to what is there.

    The model's forward calls `begin` once and `attend` once per layer. Rows of several
    sequences run together; each attends to its own. Pieces of one sequence may, too, in order.

    Args:
        storage: dtype of raw K and V; where it is not the pool's, rounding comes first.
    """

    def __init__(self, pool: Pool, layers: list[LayerHeads], storage: torch.dtype) -> None:
        self._pool = pool
        self._layers = layers
        self.storage = storage
        self._rounds = storage != pool.dtype
        self._tiles = tiles_of(layers, pool.dtype, pool.device)
        self._rows: Sequence[Rows] = ()
        self._lengths: list[int] = []
        self._cos_sin: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def begin(self, rows: Sequence[Rows]) -> None:
        """Start a forward."""
        self._rows = rows
        self._lengths = [each.dispatch.num_tokens for each in rows]
        self._cos_sin = {}
        for heads in self._layers:
            rotary = heads.rotary
            if rotary is not None and id(rotary) not in self._cos_sin:
                at = [rotary.at(e.dispatch.position, e.dispatch.num_tokens) for e in rows]
                cos, sin = (torch.cat(parts) for parts in zip(*at, strict=True))
                self._cos_sin[id(rotary)] = (cos[:, None], sin[:, None])

    def wipe(self) -> None:
        """Between two forwards: zero what the last ones left beside the slots."""
        self._rows, self._lengths, self._cos_sin = (), [], {}
        for tiles in set(self._tiles):
            tiles.wipe()
        self._pool.zero_scratch()

    @property
    def num_tokens(self) -> int:
        """T of the forward under way."""
        return sum(self._lengths)

    def is_exact(self) -> bool:
        """Whether every layer shape gives the bits of whole tiles however queries are cut."""
        return all(tiles.is_exact() for tiles in set(self._tiles))

    def attend(self, layer: int, qkv: torch.Tensor, out: torch.Tensor) -> None:
        """One layer's attention.

        Args:
            qkv: [T, H + 2 * G, D], unrotated; its K is changed in place.
            out: [T, H * D], written.
        """
        if not self._rows:
            raise RuntimeError("attend before begin")
        heads = self._layers[layer]
        num_q, num_kv = heads.num_heads, heads.kv_heads
        # -0.0 becomes +0.0: models that rotate by one and zero never give -0.0
        qkv[:, num_q : num_q + num_kv].add_(0.0)
        split = (qkv.shape[0], 2, num_kv, heads.head_dim)
        kv = qkv[:, num_q:].view(split).transpose(1, 2)
        for rows, new in zip(self._rows, self._parts(kv), strict=True):
            raw = rows.raw[layer].view(new.shape)
            raw.copy_(new)
            if self._rounds:
                new.copy_(raw)
        rotated = qkv[:, : num_q + num_kv]
        if heads.rotary is not None:
            rotated = rotate(rotated, *self._cos_sin[id(heads.rotary)])
        parts = (rotated[:, :num_q], rotated[:, num_q:], qkv[:, num_q + num_kv :], out)
        for rows, *mine in zip(self._rows, *map(self._parts, parts), strict=True):
            self._attend_rows(layer, rows.dispatch, *mine)

    def _parts(self, tensor: torch.Tensor) -> Sequence[torch.Tensor]:
        """[T, ...] by sequence."""
        return (tensor,) if len(self._lengths) == 1 else torch.split(tensor, self._lengths)

    def _attend_rows(
        self,
        layer: int,
        dispatch: Dispatch,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """Rows of one sequence; rotated q [T, H, D], k and v [T, G, D] to out [T, H * D]."""
        tiles = self._tiles[layer]
        self._pool.write(layer, dispatch, k, v)
        view = self._pool.dense if tiles.reads_dense else self._pool.view

        def read(length: int) -> tuple[torch.Tensor, torch.Tensor]:
            return view(layer, dispatch, length)

        tiles.attend(q, read, dispatch.position, out)
