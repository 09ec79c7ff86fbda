"""The tile schedule: right, and the same bits however the queries come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch

from glia.kv.attention import LayerHeads, TileAttention, schedule
from glia.kv.kernel import FlashKernel, ProductKernel

SHAPES = {
    "grouped": (9, 3, 64),
    "grouped-7": (14, 2, 64),
    "multi-head": (4, 4, 32),
    "one-kv-head": (8, 1, 16),
    "single-head": (1, 1, 64),
    "seed-shape": (16, 8, 128),
}
# bf16 scores of about 4 are rounded to 1/64
DTYPES = {torch.float32: 1e-4, torch.bfloat16: 1.5e-2, torch.float16: 1e-2}
CPU = torch.device("cpu")
LENGTH = 300


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@dataclass
class Case:
    tiles: TileAttention
    q: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    scale: float

    def run(self, cuts: Sequence[int]) -> torch.Tensor:
        """[T, H * D] from pieces of these lengths."""
        out = self.q.new_empty(sum(cuts), self.q.shape[1] * self.q.shape[2])
        at = 0
        for length in cuts:
            end = at + length
            self.tiles.attend(self.q[at:end], self.read, at, out[at:end])
            at = end
        return out

    def read(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of the first positions."""
        return self.keys[:, :length], self.values[:, :length]


def make_case(shape: str, dtype: torch.dtype, behind: float | None = None) -> Case:
    """Random q [300, H, D], K and V [G, 384, D]; `behind` stands after the last key."""
    num_heads, kv_heads, dim = SHAPES[shape]
    random = torch.Generator().manual_seed(7)
    scale = dim**-0.5

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=random).to(dtype)

    q, keys, values = draw(LENGTH, num_heads, dim), *(draw(kv_heads, 384, dim) for _ in range(2))
    if behind is not None:
        keys[:, LENGTH:] = behind
        values[:, LENGTH:] = -behind
    tiles = TileAttention(LayerHeads(num_heads, kv_heads, dim, scale, None), dtype, CPU)
    return Case(tiles, q, keys, values, scale)


def contiguous_attention(case: Case) -> torch.Tensor:
    """Causal attention over contiguous K and V, in f64, every query head by itself."""
    num_heads, dim = case.q.shape[1:]
    shared = num_heads // case.keys.shape[0]
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    outs = []
    for head in range(num_heads):
        k = case.keys[head // shared, :LENGTH].double()
        v = case.values[head // shared, :LENGTH].double()
        scores = case.q[:, head].double() @ k.T * case.scale
        outs.append(torch.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ v)
    return torch.stack(outs, 1).reshape(LENGTH, num_heads * dim)


@pytest.mark.spec(1)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_contiguous_attention(shape: str, dtype: torch.dtype) -> None:
    case = make_case(shape, dtype)
    difference = (case.run([LENGTH]).double() - contiguous_attention(case)).abs().max()
    assert difference <= DTYPES[dtype]


CUTS = [
    [1] * LENGTH,
    [128, 128, 44],
    [127, 1, 1, 128, 43],
    [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 62],
    [130, 170],
]


@pytest.mark.spec(12)
@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_bits_do_not_depend_on_cuts_or_threads(
    shape: str, dtype: torch.dtype, num_threads: int
) -> None:
    case = make_case(shape, dtype)
    torch.set_num_threads(1)
    whole = case.run([LENGTH])
    torch.set_num_threads(num_threads)
    for cuts in CUTS:
        assert torch.equal(case.run(cuts), whole), cuts


@pytest.mark.spec(12)
def test_flash_attention_is_exact_in_bf16_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """For processors on which products are slow."""
    monkeypatch.setattr("glia.kv.attention.kernel_class", lambda *_: FlashKernel)
    torch.set_num_threads(1)
    for shape in SHAPES:
        case = make_case(shape, torch.bfloat16)
        assert not case.tiles.reads_dense
        whole = case.run([LENGTH])
        for cuts in CUTS:
            assert torch.equal(case.run(cuts), whole), (shape, cuts)


def test_another_kernel_is_another_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    for kernel in (FlashKernel, ProductKernel):
        monkeypatch.setattr("glia.kv.attention.kernel_class", lambda *_, k=kernel: k)
        names.add(schedule(torch.bfloat16, CPU))
    assert len(names) == 2


@pytest.mark.spec(12)
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_long_context_is_exact(dtype: torch.dtype, num_threads: int) -> None:
    """Keys beyond what a product sums in one block."""
    torch.set_num_threads(num_threads)
    for shape in ("grouped", "seed-shape"):
        case = make_case(shape, dtype)
        random = torch.Generator().manual_seed(8)
        num_heads, _, dim = case.keys.shape
        case.keys, case.values = (
            torch.randn(num_heads, 4224, dim, generator=random).to(dtype) for _ in range(2)
        )
        whole, piece = (torch.empty(128, case.q[0].numel(), dtype=dtype) for _ in range(2))
        case.tiles.attend(case.q[:128], case.read, 4096, whole)
        for first, last in ((0, 1), (1, 2), (63, 67), (90, 128)):
            rows = piece[first:last]
            case.tiles.attend(case.q[first:last], case.read, 4096 + first, rows)
            assert torch.equal(rows, whole[first:last]), (shape, first)


@pytest.mark.parametrize("behind", [0.0, 3.0, 6e4])
def test_bits_do_not_depend_on_what_stands_behind_the_sequence(behind: float) -> None:
    for dtype in DTYPES:
        for shape in SHAPES:
            plain, other = make_case(shape, dtype), make_case(shape, dtype, behind)
            assert torch.equal(plain.run([LENGTH]), other.run([LENGTH])), (shape, dtype)


def test_a_longer_sequence_grows_the_mask_and_keeps_the_bits() -> None:
    case = make_case("grouped", torch.float32)
    fresh = make_case("grouped", torch.float32)
    first = case.run([10])
    assert torch.equal(case.run([LENGTH]), fresh.run([LENGTH]))
    assert torch.equal(case.run([10]), first)


def test_the_load_time_check_sees_a_schedule_that_is_not_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.set_num_threads(1)
    tiles = make_case("multi-head", torch.float32).tiles
    assert tiles.is_exact()
    monkeypatch.setattr("glia.kv.attention.ROW_MULTIPLE", 1)  # lone rows, as stock has them
    assert not tiles.is_exact()
