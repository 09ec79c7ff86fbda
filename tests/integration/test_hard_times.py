"""Small tiers, full disks, processes that hang or die, flipped bits: the answer is the same."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from glia.client import Client
from glia.errors import ArenaExhausted, EngineDied
from glia.local import messages as m
from glia.local import values
from tests.builders import TINY, make_chain
from tests.node_parts import FULL, RunningNode, until
from tests.tiny_node import (
    SETTINGS,
    WINDOW_BYTES,
    add_manifest,
    engine_of,
    pid_of,
    prompt,
    run,
    save_model,
    until_emitted,
)

IMPATIENT = {"session": {"ending_s": 2.0}}  # instead of 30: how long those who left are waited for


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def other_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "other", seed=1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[RunningNode]:
    """One for all: each test has prompts of its own, and leaves it running."""
    with RunningNode(tmp_path_factory.mktemp("shared") / "node", SETTINGS) as running:
        add_manifest(running, model_dir)
        yield running


# -- sizes ---------------------------------------------------------------------------------


@pytest.mark.spec(24)
@pytest.mark.parametrize("what", ["l1 of a few windows", "l2 of a few windows", "l0 for one"])
def test_tiers_too_small_for_a_prompt_cost_time_and_not_the_answer(
    node: RunningNode, model_dir: Path, tmp_path: Path, what: str
) -> None:
    changes: dict[str, dict[str, dict[str, float]]] = {
        "l1 of a few windows": {"l1": {**SETTINGS["l1"], "size_bytes": 8 * WINDOW_BYTES}},
        "l2 of a few windows": {"l2": {"size_bytes": 200_000, "segment_bytes": 65_536}},
        "l0 for one": {"l0": {"size_bytes": 700_000}},
    }
    tokens = [prompt(500, seed) for seed in (10, 11)]
    expected = [run(node.client(), t).tokens for t in tokens]
    with RunningNode(tmp_path / "node", {**SETTINGS, **changes[what]}) as small:
        add_manifest(small, model_dir)
        client = small.client()
        for _ in range(2):
            for ask, answer in zip(tokens, expected, strict=True):
                assert run(client, ask).tokens == answer
                client.evict("l0")
        for name, tier in client.status().tiers.items():
            assert tier.used_bytes <= tier.cap_bytes, name
        disk = sum(p.stat().st_blocks * 512 for p in (small.data_dir / "store").rglob("*.seg"))
        assert disk <= client.status().tiers["l2"].cap_bytes + 65_536
        assert "crashed" not in client.status().counters


@pytest.mark.fault("F5")
def test_files_that_cannot_grow_cost_the_cache_and_not_the_answer(
    node: RunningNode, model_dir: Path, tmp_path: Path
) -> None:
    """No file of gliad's may grow from now on; afterwards all is kept again, asked by nobody."""
    tokens = [prompt(600, seed) for seed in range(20, 32)]
    expected = [run(node.client(), t).tokens for t in tokens]
    small = {**SETTINGS, "l1": {**SETTINGS["l1"], "size_bytes": 64 * WINDOW_BYTES}}
    with RunningNode(tmp_path / "node", small) as full:
        add_manifest(full, model_dir)
        client = full.client()
        run(client, prompt(40, 19))  # the engine is up: memory for it counts as a file, too
        before = resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
        for ask, answer in zip(tokens, expected, strict=True):
            found = run(client, ask)
            assert found.tokens == answer
            assert found.warning
            assert found.tip is None
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, before)
        for ask, answer in zip(tokens, expected, strict=True):
            run(client, ask)
            client.evict("l0")
            found = run(client, ask)
            assert (found.tokens, found.warning) == (answer, None)
            assert found.tip is not None
            assert found.usage.computed < 40
        assert "crashed" not in client.status().counters


def test_a_guest_that_pins_all_of_l1_costs_the_cache_and_not_the_answer(
    node: RunningNode, model_dir: Path, tmp_path: Path
) -> None:
    expected = [run(node.client(), prompt(200, seed)) for seed in (40, 41)]
    small = {**SETTINGS, "l1": {**SETTINGS["l1"], "size_bytes": 16 * WINDOW_BYTES}}
    with RunningNode(tmp_path / "node", small) as own:
        add_manifest(own, model_dir)
        client, guest = own.client(), own.author()
        kept = run(client, prompt(200, 40))
        assert (kept.tokens, kept.tip) == (expected[0].tokens, expected[0].tip)
        client.evict("l0")
        client.evict("l1")
        chain = make_chain(16 * WINDOW_BYTES // TINY.window_particle_bytes)
        with suppress(ArenaExhausted):
            for first in range(0, len(chain.records), 8):
                names, _ = guest.seal(chain, first, min(first + 8, len(chain.records)))
                assert guest.lease(names).tiers
        for _ in range(2):
            for seed, answer in zip((40, 41), expected, strict=True):
                found = run(client, prompt(200, seed))
                assert found.tokens == answer.tokens
                assert found.usage.computed == 200 or found.usage.cached.l0
                client.evict("l0")
        guest.client.close()
        watcher = own.client()

        def is_kept_again() -> bool:
            found = run(watcher, prompt(200, 41))
            return (found.tokens, found.tip) == (expected[1].tokens, expected[1].tip)

        until(is_kept_again)


# -- processes that hang -------------------------------------------------------------------


def test_an_engine_that_hangs_holds_up_nobody_else(
    node: RunningNode, model_dir: Path, other_dir: Path, tmp_path: Path
) -> None:
    """SIGSTOP: others are served, its callers may leave, and gliad stops in time."""
    with RunningNode(tmp_path / "node", {**SETTINGS, **({} if FULL else IMPATIENT)}) as own:
        add_manifest(own, model_dir, "stuck")
        add_manifest(own, other_dir)
        client, other = own.client(), own.client()
        events = client.generate("stuck", prompt(50, 12), max_tokens=1900, ignore_eos=True)
        until_emitted(events)
        stuck = pid_of(client, "stuck")
        os.kill(stuck, signal.SIGSTOP)
        try:
            assert len(run(other, prompt(50, 12)).tokens) == 8
            client.close()
            waiting = [own.client() for _ in range(3)]
            for each in waiting:
                each._connection.call(
                    m.Generate(
                        900, "stuck", None, prompt(50, 12), 8, values.SamplingValue(), [], []
                    )
                )
            until(lambda: (e := engine_of(other, "stuck")) is not None and e.state == "running")
            for each in waiting:
                each.close()
            until(  # what they asked for is waited for as long as its answer could be kept
                lambda: (e := engine_of(other, "stuck")) is not None and e.state == "ready",
                10.0 + (30.0 if FULL else IMPATIENT["session"]["ending_s"]),
            )
            os.kill(stuck, signal.SIGCONT)
            assert len(run(other, prompt(50, 12), "stuck").tokens) == 8
            os.kill(stuck, signal.SIGSTOP)
            own.stop(within_s=5.0)
            assert not Path(f"/proc/{stuck}").exists()
        finally:
            with suppress(ProcessLookupError):
                os.kill(stuck, signal.SIGKILL)


def take_reply(client: Client) -> object:
    """What is not the progress of call 900."""
    while isinstance(message := client._connection.take(900, 10.0), m.Progress):
        pass
    return message


def test_a_term_while_an_engine_loads_ends_both(
    node: RunningNode, model_dir: Path, tmp_path: Path
) -> None:
    with RunningNode(tmp_path / "node", SETTINGS) as own:
        add_manifest(own, model_dir)
        client = own.client()
        call = m.Generate(900, "tiny", None, [5] * 40, 8, values.SamplingValue(), [], [])
        client._connection.call(call)
        watcher = own.client()
        until(lambda: (e := engine_of(watcher)) is not None and e.pid is not None)
        pid = pid_of(watcher)
        assert own.stop(within_s=5.0) == ""
        assert not Path(f"/proc/{pid}").exists()
        with pytest.raises(Exception, match="closed the connection"):
            take_reply(client)


# -- failed imports ------------------------------------------------------------------------


@pytest.mark.spec(65)
@pytest.mark.fault("F38")
def test_an_engine_killed_while_it_restores_leaves_the_conversation_as_it_was(
    node: RunningNode,
) -> None:
    client = node.client()
    cold = run(client, prompt(1500, 13))
    for num_calls in (2, 6, 12):  # until it is killed: it matches, restores, or is done
        client.evict("l0")
        client.evict("l1")
        pid = pid_of(client)
        connection = client._connection
        call_id = connection.next_id()
        connection.call(
            m.Generate(call_id, "tiny", None, prompt(1500, 13), 8, values.SamplingValue(), [], [])
        )
        for _ in range(num_calls):
            client.status()
        os.kill(pid, signal.SIGKILL)
        with suppress(EngineDied):  # or it had answered already
            while not isinstance(connection.take(call_id, 60.0), m.Generated):
                pass
        until(partial(is_noticed, client, pid))
        warm = run(client, prompt(1500, 13))
        assert (warm.tokens, warm.tip) == (cold.tokens, cold.tip)
        assert warm.usage.computed == 1500 - 1488
        until(lambda: (e := engine_of(client)) is not None and e.num_running == 0)
        client.evict("l0")
        client.evict("l1")
        assert client.status().tiers["l1"].used_bytes == 0  # no lease outlived the engine
    assert client.check().bad == 0


def is_noticed(client: Client, pid: int) -> bool:
    """Whether gliad knows that this engine is gone."""
    engine = engine_of(client)
    return engine is None or engine.pid != pid


@pytest.mark.spec(61, 65)
@pytest.mark.fault("F38")
def test_bits_flipped_under_a_running_node_are_found_told_and_healed(
    node: RunningNode, model_dir: Path, tmp_path: Path
) -> None:
    with RunningNode(tmp_path / "node", SETTINGS) as own:
        add_manifest(own, model_dir)
        client = own.client()
        tokens = prompt(500, 14)
        cold = run(client, tokens)
        segments = sorted((own.data_dir / "store").rglob("*.seg"))
        quarantined = 0
        for at in (0.02, 0.3, 0.55, 0.97):
            size = sum(path.stat().st_size for path in segments)
            assert size > 0
            client.evict("l0")
            client.evict("l1")
            flip(segments, int(at * 31 * WINDOW_BYTES))
            hurt = run(client, tokens)
            assert (hurt.tokens, hurt.tip) == (cold.tokens, cold.tip)
            assert hurt.usage.computed > 20
            now = client.status().tiers["l2"].quarantined
            assert now > quarantined
            quarantined = now
            client.evict("l0")
            client.evict("l1")
            healed = run(client, tokens)
            assert (healed.tokens, healed.tip) == (cold.tokens, cold.tip)
            assert healed.usage.cached.l2 == 496
            segments = sorted((own.data_dir / "store").rglob("*.seg"))
        assert client.check().bad == 0


def flip(segments: list[Path], offset: int) -> None:
    """One bit at an offset into what the segments hold together."""
    for path in segments:
        if offset < path.stat().st_size:
            with path.open("r+b") as file:
                file.seek(offset)
                byte = file.read(1)[0]
                file.seek(offset)
                file.write(bytes([byte ^ 4]))
            return
        offset -= path.stat().st_size
    pytest.fail("no segment is so long")
