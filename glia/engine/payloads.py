"""Raw payloads as tensors: the storage dtype, strided views of windows, the rows of a tail.

    W windows, S block_size, G kv heads, D head_dim

Raw means what is stored: K unrotated, then V, in the profile's scheme.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glia.graph.profile import Profile
from glia.kv.dtypes import STORAGE_DTYPES


def window_views(
    data: torch.Tensor, profile: Profile, starts: Sequence[int], step: int, num_windows: int
) -> list[torch.Tensor]:
    """Windows that stand at equal distances, as one tensor a layer.

    Args:
        data: [bytes], uint8.
        starts: per layer, byte offset of the first window's payload.
        step: bytes from one window to the next.
    Returns: per layer [W, S, G, 2 * D], storage dtype; views of `data`.
    """
    item = profile.scheme.itemsize
    typed = data[: len(data) // item * item].view(STORAGE_DTYPES[profile.scheme])
    views = []
    for shape, start in zip(profile.layers, starts, strict=True):
        width = 2 * shape.head_dim
        size = (num_windows, profile.block_size, shape.kv_heads, width)
        stride = (step // item, shape.kv_heads * width, width, 1)
        views.append(typed.as_strided(size, stride, typed.storage_offset() + start // item))
    return views


def layer_starts(profile: Profile) -> list[int]:
    """Where each layer's payload starts in a window's payloads without gaps."""
    starts, at = [], 0
    for size in profile.payload_sizes:
        starts.append(at)
        at += size
    return starts


def scratch_rows(profile: Profile, num_tokens: int) -> list[torch.Tensor]:
    """Room for the raw rows of so many tokens: per layer [T, G, 2 * D], storage dtype."""
    dtype = STORAGE_DTYPES[profile.scheme]
    return [
        torch.zeros(num_tokens, shape.kv_heads, 2 * shape.head_dim, dtype=dtype)
        for shape in profile.layers
    ]


def all_finite(rows: Sequence[torch.Tensor]) -> bool:
    """Whether no element is NaN or infinite (a sum in f32 keeps both)."""
    sums = torch.stack([layer.sum(dtype=torch.float32) for layer in rows])
    return bool(torch.isfinite(sums).all())


class Tail:
    """Raw rows of a sequence's last, not yet full window. Its own, until it is sealed.

    A fork shares the bytes and copies them before its first write: rows that both have
    never change, because either side only appends.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._shared = self._lent = False
        self.num_rows = 0
        self.data = torch.zeros(profile.window_payload_bytes, dtype=torch.uint8)
        self._layers = self._views()

    def rows(self, num_new: int) -> list[torch.Tensor]:
        """Where the next rows go: per layer [T, G, 2 * D]. They count from `grow` on."""
        if self._shared:
            self.data = self.data.clone()
            self._layers = self._views()
            self._shared = self._lent = False
        end = self.num_rows + num_new
        return [layer[self.num_rows : end] for layer in self._layers]

    def grow(self, num_new: int) -> None:
        """The next rows are written."""
        self.num_rows += num_new

    def windows(self) -> list[torch.Tensor]:
        """The tail as one window: per layer [1, S, G, 2 * D]."""
        return [layer[None] for layer in self._layers]

    def wipe(self) -> None:
        """Its sequence is over, or has sealed it: zero the rows, where no fork reads them."""
        if not (self._shared or self._lent):
            self.data.zero_()

    def fork(self) -> Tail:
        """The same rows, copied when the fork first writes."""
        self._lent = True
        twin = Tail.__new__(Tail)
        twin._profile, twin._shared, twin._lent = self._profile, True, False
        twin.num_rows, twin.data, twin._layers = self.num_rows, self.data, self._layers
        return twin

    def _views(self) -> list[torch.Tensor]:
        size = self._profile.window_payload_bytes
        starts = layer_starts(self._profile)
        return [view[0] for view in window_views(self.data, self._profile, starts, size, 1)]
