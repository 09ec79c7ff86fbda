"""Linear layers and activations: a row's bits do not depend on the rows beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from glia.engine.activation import RowActivation
from glia.engine.linear import RowLinear

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def draw(*shape: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=random).to(dtype)


@pytest.mark.spec(12)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(576, 960), (1536, 576), (64, 48)], ids=str)
@torch.inference_mode()
def test_bits_do_not_depend_on_rows_or_threads(shape: tuple[int, int], dtype: torch.dtype) -> None:
    num_in, num_out = shape
    linear = RowLinear(draw(num_out, num_in, dtype=dtype), draw(num_out, dtype=dtype, seed=2))
    x = draw(300, num_in, dtype=dtype, seed=3)
    torch.set_num_threads(1)
    whole = linear(x)
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        for num_rows in (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 30, 77, 128, 299):
            assert torch.equal(linear(x[:num_rows]), whole[:num_rows]), (num_threads, num_rows)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.inference_mode()
def test_equals_the_plain_layer(dtype: torch.dtype) -> None:
    plain = nn.Linear(96, 40).to(dtype)
    linear = RowLinear(plain.weight, plain.bias)
    x = draw(1, 8, 96, dtype=dtype)
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    assert (linear(x) - plain(x)).abs().max() <= tolerance
    assert linear(x[:, :1]).shape == (1, 1, 40)
    assert torch.equal(linear(x[:, :1]), linear(x)[:, :1])


@torch.inference_mode()
def test_without_the_packing_operator_the_plain_product_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weight, x = draw(64, 96, dtype=torch.bfloat16), draw(8, 96, dtype=torch.bfloat16)
    before = RowLinear(weight, None)

    def missing(*_: object) -> None:
        raise AttributeError("no such operator")

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", missing)
    after = RowLinear(weight, None)
    assert not after.is_packed
    assert torch.equal(after(x), nn.functional.linear(x, weight))
    assert torch.allclose(after(x).float(), before(x).float(), atol=0.1)


@torch.inference_mode()
def test_packing_for_each_call_gives_the_bits_of_packing_once() -> None:
    weight, x = draw(64, 96, dtype=torch.bfloat16), draw(8, 96, dtype=torch.bfloat16)
    each = RowLinear(weight, None, pack_once=False)
    assert each.weight is not None
    assert torch.equal(each(x), RowLinear(weight, None)(x))


@pytest.mark.spec(12)
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("kind", [nn.SiLU(), nn.GELU(approximate="tanh"), nn.GELU()], ids=str)
@pytest.mark.parametrize("width", [1536, 2432, 4864])
def test_activations_do_not_depend_on_rows_or_threads(
    kind: nn.Module, width: int, dtype: torch.dtype
) -> None:
    x = draw(1, 512, width, dtype=dtype)
    activation = RowActivation(kind)
    torch.set_num_threads(1)
    whole = activation(x)
    assert torch.equal(whole, kind(x))
    for num_threads in (2, 3, 5):
        torch.set_num_threads(num_threads)
        for num_rows in (4, 40, 100, 512):
            assert torch.equal(activation(x[:, :num_rows]), whole[:, :num_rows])
