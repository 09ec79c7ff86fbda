"""A fault in one place of the product makes the scenario fail whose claim it breaks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pytest

from daemon.egress import Egress
from daemon.publisher import Publisher
from glia.graph.ids import BlockId
from glia.store.published_reader import PublishedReader
from p2p import getter
from simulations.catalogue import SCENARIOS
from simulations.virtual import gliad


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def failing(name: str) -> set[str]:
    """The parts of its claim that do not hold."""
    scenario = SCENARIOS[name]
    return {check.what for check in scenario.run(scenario.quick).checks if not check.holds}


class Telltale(Publisher):
    """Whatever has a public beginning is announced to its end."""

    async def _publish(self, name: str, *_: object) -> None:
        await self.publish(name, None, dry=False)


class Generous(Egress):
    """It serves what it has, published or not."""

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        return self._particles.read_blocks(block_ids, into)


def test_a_getter_that_skips_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getter, "take_block", lambda *_: None)
    assert "wrong particles taken" in failing("liars")


def test_an_announcer_that_announces_private_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gliad, "Publisher", Telltale)
    assert "private sentinels in the bytes" in failing("privacy")


def test_a_provider_that_serves_beyond_its_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gliad, "Egress", Generous)
    assert failing("privacy") == {"private sentinels in the bytes"}


def test_a_look_up_that_grows_with_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    named = PublishedReader._named

    def reads_all(self: PublishedReader, keys: Sequence[tuple[int, bytes]]) -> object:
        self._index.keys(b"")
        return named(self, keys)  # type: ignore[arg-type]

    monkeypatch.setattr(PublishedReader, "_named", reads_all)
    (what,) = failing("scale")
    assert what.startswith("rows read")
