"""A gliad that says what it is told to, for tests of the verbs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli_parts import World
from tests.fake_gliad import FakeGliad
from tests.model_files import write_model


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(write_model(tmp_path / "model"))


@pytest.fixture
def gliad(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGliad]:
    monkeypatch.setenv("GLIA_DATA_DIR", str(tmp_path))
    with FakeGliad(tmp_path, world.answer) as fake:
        yield fake
