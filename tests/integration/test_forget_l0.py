"""Forgetting in L0, a real model: no byte of a forgotten window is in any buffer of the engine."""

from __future__ import annotations

import pytest
import torch

from glia.engine.load import load_model
from glia.engine.loaded import LoadedModel
from glia.engine.sequence import Request
from glia.graph.chain import walk
from glia.graph.ids import WindowId
from glia.graph.profile import KvScheme, PositionMode, Profile
from glia.store.memory import MemoryStore
from tests.engine_parts import Rig, make_memory, make_rig
from tests.model_parts import save_tiny, seeded_tokens, settings

NUM_SLOTS = 40
TINY_SLOT = 2 * 2 * 16 * 2 * 16 * 4  # K and V of two layers, 16 tokens, two heads


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    torch.set_num_threads(1)
    path = save_tiny(tmp_path_factory.mktemp("models") / "m", "llama")
    return load_model(path, settings())


@pytest.fixture
def rig(model: LoadedModel) -> tuple[Rig, MemoryStore]:
    model.clear(range(model.num_slots))
    model.wipe()
    profile = Profile(16, KvScheme.F32, PositionMode.RELATIVE, model.shapes)
    store = MemoryStore(1 << 28)
    memory = make_memory(profile, model.numerics_class, store=store, staging_windows=9)
    return make_rig(model, profile, NUM_SLOTS, memory=memory, prefill_tokens=128), store


def tokens_of(seed: int, count: int = 100) -> list[int]:
    return [*seeded_tokens(50, 96, 7), *seeded_tokens(count, 96, seed)]


def shuffle(rig: Rig, tokens: list[int]) -> None:
    """Have these tokens restored into slots that do not follow each other, from old ones."""
    slots = rig.engine._residency.take(NUM_SLOTS // 2)
    rig.engine._residency.release(slots[::2])
    rig.engine.evict_l0()
    sequence = rig.engine.submit(Request(tuple(tokens), 20))
    while not rig.engine.idle:
        rig.engine.step()
    assert sequence.usage.l1
    rig.engine._residency.release(slots[1::2])
    rig.engine.check()


def buffers(rig: Rig) -> dict[str, torch.Tensor]:
    """Everything of the engine's that K, V or queries ever stand in."""
    engine, model = rig.engine, rig.engine._model
    assert isinstance(model, LoadedModel)
    pool = model._pool
    packed = [tiles._packed for tiles in model._attention._tiles]
    return {
        "keys": torch.cat([t.flatten() for t in pool._keys]),
        "values": torch.cat([t.flatten() for t in pool._values]),
        "gathered": pool._scratch.data.flatten(),
        "queries": torch.cat([t.flatten() for t in packed]),
        "raw rows": torch.cat([t.flatten() for t in engine._computation._scratch]),
        "staging": torch.from_numpy(rig.memory.staging),
    }


def found(rig: Rig, rows: set[bytes]) -> dict[str, int]:
    """How many of these rows each buffer holds."""
    held = {what: tensor.numpy().tobytes() for what, tensor in buffers(rig).items()}
    return {what: sum(row in data for row in rows) for what, data in held.items()}


def rows_of(rig: Rig, names: list[WindowId]) -> set[bytes]:
    """K and V of windows, as they are stored, and K as it stands in the pool; a head each.

    Of the second layer: the first one's follow from a token alone, whosever it is.
    """
    engine, model = rig.engine, rig.engine._model
    assert isinstance(model, LoadedModel)
    slots = [slot for name in names if (slot := engine._residency._slots.get(name)) is not None]
    rows = [model._pool._keys[1][:, slot * 16 : slot * 16 + 16] for slot in slots]
    width = 2 * model.shapes[0].head_dim
    for name in names:
        record = rig.memory._store.get(name)
        assert record is not None
        payload = bytearray(rig.memory._store.read_block(record.blocks[1])[192:])
        raw = torch.frombuffer(payload, dtype=torch.float32).view(-1, width)
        rows += [raw[:, : width // 2], raw[:, width // 2 :]]
    return {row.tobytes() for part in rows for row in part.reshape(-1, width // 2).numpy()}


@pytest.mark.spec(27)
def test_no_byte_of_a_forgotten_window_stays_in_the_engine(
    rig: tuple[Rig, MemoryStore], model: LoadedModel
) -> None:
    rig_, store = rig
    kept_tip = rig_.generate(tokens_of(1), 20).tip
    gone_tip = rig_.generate(tokens_of(2), 20).tip
    assert kept_tip is not None
    assert gone_tip is not None
    shuffle(rig_, tokens_of(2))
    kept = [record.window_id for record in walk(kept_tip, store.get)]
    gone = [r.window_id for r in walk(gone_tip, store.get) if r.window_id not in kept]
    assert len(gone) == 7  # three windows are both's
    rows = rows_of(rig_, gone)
    before = found(rig_, rows)
    assert all(before[what] for what in before if what != "queries"), before
    assert buffers(rig_)["queries"].any()
    stays = rows_of(rig_, kept[:3])
    num_stay = found(rig_, stays)["values"]
    assert num_stay == 3 * 16 * 2

    rig_.memory.forget(gone)
    dropped = rig_.engine.forget_l0()

    assert dropped == (7 * TINY_SLOT, 7)
    assert not any(found(rig_, rows).values())
    left = {what: tensor.any() for what, tensor in buffers(rig_).items()}
    assert [what for what in left if left[what]] == ["keys", "values"]
    assert found(rig_, stays)["values"] == num_stay
    again = rig_.generate(tokens_of(1), 20)
    assert (again.usage.l0, again.usage.l1) == (3 * 16, 6 * 16)
    assert again.tip == kept_tip


def test_what_a_running_sequence_uses_stays_as_it_is(
    rig: tuple[Rig, MemoryStore], model: LoadedModel
) -> None:
    rig_, store = rig
    alone = rig_.generate(tokens_of(4), 30)
    assert alone.tip is not None
    names = [record.window_id for record in walk(alone.tip, store.get)]
    sequence = rig_.engine.submit(Request(tuple(tokens_of(4)), 30))
    while len(sequence.answer) < 12:
        rig_.outcomes += rig_.engine.step()
        rig_.engine.forget_l0()
        rig_.engine.check()
    assert rig_.memory.known(names) == set(names)
    rig_.run()
    assert rig_.answer(sequence).tokens == alone.tokens
    assert rig_.answer(sequence).tip == alone.tip
    assert rig_.answer(sequence).usage.computed == 150 - 144


def test_cells_under_way_are_not_zeroed(rig: tuple[Rig, MemoryStore], model: LoadedModel) -> None:
    """Names are made when they are collected: from zeroed staging they would be others."""
    rig_, _ = rig
    expected = rig_.generate(tokens_of(5), 20)
    rig_.memory.forget(rig_.engine._residency.unused)
    rig_.engine.forget_l0()
    fresh = make_memory(rig_.memory._profile, model.numerics_class, staging_windows=9)
    other = make_rig(model, rig_.memory._profile, NUM_SLOTS, memory=fresh, prefill_tokens=128)
    sequence = other.engine.submit(Request(tuple(tokens_of(5)), 20))
    other.run(on_step=lambda: other.engine.forget_l0())
    assert other.answer(sequence).tip == expected.tip


def test_a_fork_keeps_its_tail_when_the_other_ends(
    rig: tuple[Rig, MemoryStore], model: LoadedModel
) -> None:
    rig_, _ = rig
    alone = rig_.generate(tokens_of(6), 30)
    sequence = rig_.engine.submit(Request(tuple(tokens_of(6)), 30))
    while len(sequence.answer) < 5:
        rig_.outcomes += rig_.engine.step()
    twin = rig_.engine.fork(sequence)
    rig_.engine.cancel(sequence)
    rig_.run()
    assert rig_.answer(twin).tokens == alone.tokens
    assert rig_.answer(twin).tip == alone.tip


def test_the_tail_of_an_ended_sequence_is_zero(
    rig: tuple[Rig, MemoryStore], model: LoadedModel
) -> None:
    rig_, _ = rig
    sequence = rig_.engine.submit(Request(tuple(tokens_of(8)), 30))
    while len(sequence.answer) < 5:
        rig_.outcomes += rig_.engine.step()
    tail = sequence.tail
    assert tail is not None
    assert tail.data.any()
    rig_.engine.cancel(sequence)
    rig_.run()
    assert not tail.data.any()
