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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from glia.kv.pool import KEY_TILE, Dispatch, Pool
from glia.kv.rotary import Rotary, rotate

TILE = KEY_TILE
ROW_MULTIPLE = 4
LONE_HEAD_ROWS = 36
_PROBE_TILES = 9
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
SCHEDULE = f"tile{TILE}.row{ROW_MULTIPLE}.lone{LONE_HEAD_ROWS}"


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


class TileAttention:
    """The tile schedule for layers of one shape; owns the mask and the packed-query buffer."""

    def __init__(self, heads: LayerHeads, dtype: torch.dtype, device: torch.device) -> None:
        self._kv_heads, self._dim = heads.kv_heads, heads.head_dim
        self._per_head = heads.num_heads // heads.kv_heads
        self._scale = heads.scale
        rows = TILE * self._per_head + LONE_HEAD_ROWS
        self._packed = torch.zeros(self._kv_heads, rows, self._dim, dtype=dtype, device=device)
        self._mask = self._triangle(rows, 0)
        self._last_mask: tuple[tuple[int, int, int], torch.Tensor] = ((0, 0, -1), self._mask)

    def _triangle(self, rows: int, past: int) -> torch.Tensor:
        """[rows, past + TILE]: 0 where key - past <= query's place in its tile, else -inf."""
        like = self._packed
        query = torch.arange(rows, device=like.device)[:, None] // self._per_head
        key = torch.arange(past + TILE, device=like.device)[None] - past
        mask = torch.zeros(rows, past + TILE, dtype=like.dtype, device=like.device)
        return mask.masked_fill_(key > query, float("-inf"))

    def _mask_at(self, offset: int, rows: int, start: int) -> torch.Tensor:
        """[1, 1, rows, start + TILE]; the layers of a step ask for the same one."""
        wanted = (offset, rows, start)
        if self._last_mask[0] != wanted:
            past = self._mask.shape[1] - TILE
            if past < start:
                past = max(start, 2 * past)
                self._mask = self._triangle(self._mask.shape[0], past)
            first = offset * self._per_head
            mask = self._mask[first : first + rows, past - start : past + TILE]
            self._last_mask = (wanted, mask[None, None])
        return self._last_mask[1]

    def _num_rows(self, num_queries: int) -> int:
        rows = -(-num_queries * self._per_head // ROW_MULTIPLE) * ROW_MULTIPLE
        return max(rows, LONE_HEAD_ROWS) if self._kv_heads == 1 else rows

    def attend(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, position: int
    ) -> torch.Tensor:
        """Causal attention of T queries from `position` on; returns [T, H * D].

        Args:
            q: [T, H, D], rotated.
            keys, values: [G, KL, D], by position.
        """
        num_tokens = q.shape[0]
        if num_tokens == 1:
            return self._tile(q, keys, values, position).reshape(1, -1)
        out = q.new_empty(num_tokens, q.shape[1] * q.shape[2])
        for first, last in _tiles(position, num_tokens):
            tile = self._tile(q[first:last], keys, values, position + first)
            out[first:last].view(tile.shape).copy_(tile)
        return out

    def _tile(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, position: int
    ) -> torch.Tensor:
        """Queries of one tile, [n, H, D]; returns [n, G, R, D]."""
        num_queries = q.shape[0]
        start = position // TILE * TILE
        used, rows = num_queries * self._per_head, self._num_rows(num_queries)
        by_query = (num_queries, self._kv_heads, self._per_head, self._dim)
        by_head = (self._kv_heads, num_queries, self._per_head, self._dim)
        self._packed[:, :used].view(by_head).copy_(q.view(by_query).transpose(0, 1))
        out = torch.nn.functional.scaled_dot_product_attention(
            self._packed[None, :, :rows],
            keys[None, :, : start + TILE],
            values[None, :, : start + TILE],
            attn_mask=self._mask_at(position - start, rows, start),
            scale=self._scale,
        )
        return out[0, :, :used].view(by_head).transpose(0, 1)

    def wipe(self) -> None:
        """Forget the last queries."""
        self._packed.zero_()

    def is_exact(self) -> bool:
        """Whether pieces of a tile have the bits of the whole tile, on seeded random data."""
        random = torch.Generator().manual_seed(1)
        like = self._packed
        num_heads = self._kv_heads * self._per_head
        length = _PROBE_TILES * TILE

        def draw(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=random).to(like.device, like.dtype)

        q = draw(TILE, num_heads, self._dim)
        keys, values = (draw(self._kv_heads, length, self._dim) for _ in range(2))
        for start in (0, length - TILE):
            whole = self.attend(q, keys, values, start)
            for first, last in _PROBE_PIECES:
                piece = self.attend(q[first:last], keys, values, start + first)
                if not torch.equal(piece, whole[first:last]):
                    return False
        return True


def _tiles(position: int, num_tokens: int) -> Iterator[tuple[int, int]]:
    """(first, last) token numbers of each aligned tile."""
    first = 0
    while first < num_tokens:
        last = min(num_tokens, first + TILE - (position + first) % TILE)
        yield first, last
        first = last


class PooledAttention:
    """Attention over the pool: stores what is new, attends to what is there.

    The model's forward calls `begin` once and `attend` once per layer.

    Args:
        storage: dtype of raw K and V; where it is not the pool's, rounding comes first.
    """

    def __init__(self, pool: Pool, layers: list[LayerHeads], storage: torch.dtype) -> None:
        self._pool = pool
        self._layers = layers
        self.storage = storage
        self._rounds = storage != pool.dtype
        shared: dict[tuple[int, int, int, float], TileAttention] = {}
        self._tiles = []
        for heads in layers:
            key = (heads.num_heads, heads.kv_heads, heads.head_dim, heads.scale)
            if key not in shared:
                shared[key] = TileAttention(heads, pool.dtype, pool.device)
            self._tiles.append(shared[key])
        self._dispatch: Dispatch | None = None
        self._raw: Sequence[torch.Tensor] = ()
        self._cos_sin: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def begin(self, dispatch: Dispatch, raw: Sequence[torch.Tensor]) -> None:
        """Start a forward; `raw` per layer [T, G, 2 * D] receives unrotated K and V."""
        self._dispatch, self._raw = dispatch, raw
        self._cos_sin = {}
        for heads in self._layers:
            rotary = heads.rotary
            if rotary is not None and id(rotary) not in self._cos_sin:
                cos, sin = rotary.at(dispatch.position, dispatch.num_tokens)
                self._cos_sin[id(rotary)] = (cos[:, None], sin[:, None])

    def wipe(self) -> None:
        """Between two forwards: zero what the last ones left beside the slots."""
        self._dispatch, self._raw, self._cos_sin = None, (), {}
        for tiles in set(self._tiles):
            tiles.wipe()
        self._pool.zero_scratch()

    @property
    def num_tokens(self) -> int:
        """T of the forward under way."""
        return self._dispatch.num_tokens if self._dispatch else 0

    def is_exact(self) -> bool:
        """Whether every layer shape gives the bits of whole tiles however queries are cut."""
        return all(tiles.is_exact() for tiles in set(self._tiles))

    def attend(self, layer: int, qkv: torch.Tensor) -> torch.Tensor:
        """One layer's attention; returns [T, H * D].

        Args:
            qkv: [T, H + 2 * G, D], unrotated; its K is changed in place.
        """
        dispatch, heads = self._dispatch, self._layers[layer]
        if dispatch is None:
            raise RuntimeError("attend before begin")
        num_q, num_kv = heads.num_heads, heads.kv_heads
        # -0.0 becomes +0.0: models that rotate by one and zero never give -0.0
        qkv[:, num_q : num_q + num_kv].add_(0.0)
        split = (dispatch.num_tokens, 2, num_kv, heads.head_dim)
        kv = qkv[:, num_q:].view(split).transpose(1, 2)
        raw = self._raw[layer].view(kv.shape)
        raw.copy_(kv)
        if self._rounds:
            kv.copy_(raw)
        rotated = qkv[:, : num_q + num_kv]
        if heads.rotary is not None:
            rotated = rotate(rotated, *self._cos_sin[id(heads.rotary)])
        self._pool.write(layer, dispatch, rotated[:, num_q:], qkv[:, num_q + num_kv :])
        keys, values = self._pool.view(layer, dispatch)
        return self._tiles[layer].attend(rotated[:, :num_q], keys, values, dispatch.position)
