"""simulations.canonical: what it computes, and that it sees a number that differs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from glia.engine.canonical import CanonicalModel
from simulations.canonical import __main__ as command
from simulations.canonical import child
from tests.model_parts import save_tiny

TOKENS = [3 + 7 * at % 90 for at in range(40)]
Found = dict[str, tuple[torch.Tensor, torch.Tensor]]


@pytest.fixture
def computed(tmp_path: Path) -> CanonicalModel:
    return CanonicalModel.open(save_tiny(tmp_path / "m", "llama"), most_bytes=1 << 30)


def test_what_is_computed_in_pieces_is_what_is_computed_at_once(computed: CanonicalModel) -> None:
    one, other = (child.compute(computed, TOKENS, piece) for piece in (512, 7))
    assert set(one) == {*child.STORAGE, *(f"{name} wide" for name in child.STORAGE)}
    for name in ("bf16", "f16"):
        assert torch.equal(one[name], other[name])


@pytest.mark.parametrize(("storage", "code"), [(None, 0), ("bf16", 1), ("f16", 1), ("f32", 0)])
def test_an_element_that_differs_fails_it_where_that_decides(
    computed: CanonicalModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    storage: str | None,
    code: int,
) -> None:
    plain = child.compute(computed, TOKENS, 512)

    def run(directory: Path, num_tokens: int, *_: object, threads: int = 1, **__: object) -> Found:
        found = {name: (plain[name].clone(), plain[f"{name} wide"]) for name in child.STORAGE}
        if storage is not None and threads == 2:
            found[storage][0][0, 3, 0, 5] += 1
        return found

    monkeypatch.setattr(command, "_run", run)
    monkeypatch.setattr(command, "measure_speeds", lambda _: {"native": 1.0})
    assert command.main(["--tokens", "40", "--quick"]) == code
    told = capsys.readouterr().out.splitlines()
    differ = [line for line in told if "rounded 1" in line]
    assert len(differ) == (storage is not None)
