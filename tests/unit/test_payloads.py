"""Raw bytes as tensors."""

from __future__ import annotations

import pytest
import torch

from glia.engine.payloads import Tail, all_finite, layer_starts, scratch_rows, window_views
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile

UNEVEN = Profile(
    16,
    KvScheme.F32,
    PositionMode.RELATIVE,
    (LayerShape(0, 1, 4), LayerShape(2, 3, 8), LayerShape(3, 2, 2)),
)


def test_views_are_the_bytes_where_they_stand() -> None:
    step = UNEVEN.window_payload_bytes + 64
    data = torch.arange(3 * step // 4, dtype=torch.float32).view(torch.uint8)
    views = window_views(data[32:], UNEVEN, layer_starts(UNEVEN), step, 2)
    assert [tuple(v.shape) for v in views] == [(2, 16, 1, 8), (2, 16, 3, 16), (2, 16, 2, 4)]
    for view, start, size in zip(views, layer_starts(UNEVEN), UNEVEN.payload_sizes, strict=True):
        for window in range(2):
            at = (32 + window * step + start) // 4
            assert view[window].flatten().tolist() == list(range(at, at + size // 4))
    views[1][1].zero_()
    assert int(data.view(torch.float32)[(32 + step + layer_starts(UNEVEN)[1]) // 4]) == 0


@pytest.mark.parametrize("scheme", list(KvScheme))
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_seen(scheme: KvScheme, bad: float) -> None:
    profile = Profile(16, scheme, PositionMode.RELATIVE, UNEVEN.layers)
    rows = scratch_rows(profile, 20)
    for layer in rows:
        layer.fill_(6e4)  # sums past what f16 holds are finite all the same
    assert all_finite(rows)
    rows[1][7, 2, 3] = bad
    assert not all_finite(rows)


def test_a_tail_grows_by_rows_and_is_one_window() -> None:
    tail = Tail(UNEVEN)
    for count, value in [(3, 1.0), (1, 2.0), (12, 3.0)]:
        for rows in tail.rows(count):
            assert rows.shape[0] == count
            rows.fill_(value)
        tail.grow(count)
    expected = [1.0] * 3 + [2.0] + [3.0] * 12
    for window in tail.windows():
        assert window[0, :, 0, 0].tolist() == expected
    assert tail.num_rows == 16


@pytest.mark.spec(6)
def test_a_forked_tail_shares_bytes_until_it_is_written() -> None:
    tail = Tail(UNEVEN)
    for rows in tail.rows(2):
        rows.fill_(1.0)
    tail.grow(2)
    twin = tail.fork()
    assert twin.data.data_ptr() == tail.data.data_ptr()
    for rows in tail.rows(1):
        rows.fill_(2.0)
    tail.grow(1)
    for rows in twin.rows(1):
        rows.fill_(3.0)
    twin.grow(1)
    assert twin.data.data_ptr() != tail.data.data_ptr()
    assert tail.windows()[1][0, :3, 0, 0].tolist() == [1.0, 1.0, 2.0]
    assert twin.windows()[1][0, :3, 0, 0].tolist() == [1.0, 1.0, 3.0]
