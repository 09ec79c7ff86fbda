"""The engine's own logic over a model that adds: exact sums betray any wrong slot or byte."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from glia.engine.outcome import Broken, Emitted, Finished, Prefilled
from glia.engine.sequence import Request, State
from glia.errors import (
    ArenaExhausted,
    EngineFailed,
    GliaError,
    NotFound,
    NotRunning,
    PoolExhausted,
    PromptError,
    StoreBroken,
    StoreFull,
)
from glia.graph.chain import walk
from glia.graph.ids import WindowId
from glia.graph.sampling import Sampling
from glia.store.memory import MemoryStore
from tests.builders import TINY
from tests.engine_parts import Rig, make_memory, make_rig
from tests.fake_model import AddingModel

SIZE = TINY.block_size


def prompt(num_tokens: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(97) for _ in range(num_tokens)]


def fresh(num_slots: int = 64, **model: object) -> Rig:
    return make_rig(AddingModel(TINY, num_slots, **model), TINY, num_slots)  # type: ignore[arg-type]


def cold(tokens: list[int], max_tokens: int = 8, **request: object) -> tuple[int, ...]:
    return fresh().generate(tokens, max_tokens, **request).tokens


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 200])
def test_warm_from_every_tier_gives_the_cold_tokens(length: int) -> None:
    rig = fresh()
    tokens = prompt(length)
    expected = rig.generate(tokens)
    for tier in ("l0", "l1", "l2"):
        if tier != "l0":
            rig.engine.evict_l0()
        if tier == "l2":
            rig.memory.drop_l1()
        again = rig.generate(tokens)
        assert again.tokens == expected.tokens
        assert again.tip == expected.tip
        cached = (length - 1) // SIZE * SIZE
        assert getattr(again.usage, tier) == cached
        assert again.usage.computed == length - cached
        assert again.usage.prompt_tokens == length


def test_the_tip_names_every_full_window_of_prompt_and_answer() -> None:
    for length, max_tokens in [(9, 7), (9, 6), (16, 16), (5, 3), (40, 24)]:
        store = MemoryStore(1 << 30)
        model = AddingModel(TINY, 64)
        rig = make_rig(model, TINY, 64, memory=make_memory(TINY, model.numerics_class, store=store))
        tokens = prompt(length)
        answer = rig.generate(tokens, max_tokens)
        whole = (tokens + list(answer.tokens))[: (length + max_tokens) // SIZE * SIZE]
        if not whole:
            assert answer.tip is None
            continue
        assert answer.tip is not None
        chain = walk(answer.tip, store.get)
        assert [t for record in chain for t in record.tokens] == whole


def test_a_window_filled_by_decoding_is_found_by_the_next_turn() -> None:
    rig = fresh()
    first = rig.generate(prompt(20), 30)
    turn = prompt(20) + list(first.tokens) + prompt(5, seed=9)
    assert rig.generate(turn).usage.l0 == 48
    assert rig.generate(turn).tokens == cold(turn)


def test_where_decoding_is_not_exact_decoded_windows_get_no_name() -> None:
    rig = fresh(decode_is_exact=False)
    first = rig.generate(prompt(20), 30)
    assert first.warning is None
    turn = prompt(20) + list(first.tokens) + prompt(5, seed=9)
    again = rig.generate(turn)
    assert (again.usage.l0, again.usage.computed) == (16, 39)
    assert again.tokens == cold(turn)


@pytest.mark.parametrize("start", ["at once", "in turn"])
def test_one_prefix_of_many_requests_is_computed_once(start: str) -> None:
    rig = fresh(256)
    system = prompt(208)
    requests = [Request(tuple(system + prompt(7, seed=n)), 4) for n in range(1, 9)]
    sequences = []
    for request in requests:
        sequences.append(rig.engine.submit(request))
        if start == "in turn":
            rig.run()
    rig.run()
    computed = sum(rig.answer(s).usage.computed for s in sequences)
    assert computed == 208 + 8 * 7
    for sequence in sequences:
        assert rig.answer(sequence).tokens == cold(list(sequence.request.tokens), 4)


def test_many_at_once_get_the_tokens_they_get_alone() -> None:
    rig = fresh(200)
    prompts = [prompt(n * 13 + 1, seed=n) for n in range(9)]
    sequences = [rig.engine.submit(Request(tuple(p), 5 + len(p) % 3)) for p in prompts]
    rig.run()
    for tokens, sequence in zip(prompts, sequences, strict=True):
        assert rig.answer(sequence).tokens == cold(tokens, 5 + len(tokens) % 3)
        assert rig.emitted(sequence) == list(rig.answer(sequence).tokens)


@pytest.mark.parametrize("arena_windows", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("num_slots", [14, 15, 64])
@pytest.mark.parametrize("staging_windows", [1, 3])
def test_results_do_not_depend_on_the_sizes_of_the_tiers(
    arena_windows: int, num_slots: int, staging_windows: int
) -> None:
    model = AddingModel(TINY, num_slots)
    memory = make_memory(
        TINY,
        model.numerics_class,
        arena_windows=arena_windows,
        staging_windows=staging_windows,
    )
    rig = make_rig(model, TINY, num_slots, memory=memory)
    for seed in (1, 2, 1, 1, 3, 2):
        tokens = prompt(200, seed=4)[:100] + prompt(100, seed=seed)
        answer = rig.generate(tokens, 20)
        assert answer.tokens == cold(tokens, 20)
        assert answer.usage.prompt_tokens == 200
    assert answer.usage.computed == 200 - 192
    assert memory.num_leases == 0


@pytest.mark.parametrize("hole", [0, 5, 31, 32, 40, 98])
def test_a_hole_shortens_the_prefix_and_the_rest_is_computed(hole: int) -> None:
    class Holey(MemoryStore):
        bad: object = None

        def load(self, window_ids, into):  # type: ignore[no-untyped-def]
            return [
                w != self.bad and ok
                for w, ok in zip(window_ids, super().load(window_ids, into), strict=True)
            ]

    store, model = Holey(1 << 30), AddingModel(TINY, 128)
    memory = make_memory(TINY, model.numerics_class, store=store)
    rig = make_rig(model, TINY, 128, memory=memory)
    tokens = prompt(1600)
    expected = rig.generate(tokens)
    assert expected.tip is not None
    store.bad = walk(expected.tip, store.get)[hole].window_id
    rig.engine.evict_l0()
    memory.drop_l1()
    again = rig.generate(tokens)
    assert (again.usage.l2, again.usage.computed) == (hole * SIZE, 1600 - hole * SIZE)
    assert again.tokens == expected.tokens
    assert memory.num_leases == 0


def test_windows_behind_a_hole_that_are_in_l0_are_not_used() -> None:
    rig = fresh(13)
    expected = rig.generate(prompt(200), 1)  # 13 windows: fills L0
    rig.generate(prompt(40, seed=5), 1)  # evicts the chain's end, leaves before roots
    again = rig.generate(prompt(200), 1)
    assert again.tokens == expected.tokens
    assert again.usage.l0 == 10 * SIZE
    assert again.usage.l1 == 2 * SIZE


def test_prompts_that_cannot_be_are_refused() -> None:
    rig = fresh(64, context_tokens=100)
    for tokens, words in [
        ((), "empty"),
        (tuple(prompt(100)), "context"),
        ((1, 97), "vocabulary"),
        ((-1,), "vocabulary"),
    ]:
        with pytest.raises(PromptError, match=words) as caught:
            rig.engine.submit(Request(tokens, 4))
        assert caught.value.hint
    assert rig.engine.idle


def test_the_answer_ends_at_the_context_limit() -> None:
    rig = fresh(64, context_tokens=100)
    answer = rig.generate(prompt(90), 50)
    assert len(answer.tokens) == 10
    assert answer.finish_reason == "length"


def test_larger_than_l0_is_refused_and_says_what_to_change() -> None:
    rig = fresh(4)
    with pytest.raises(PoolExhausted, match="room for 64") as caught:
        rig.engine.submit(Request(tuple(prompt(60)), 8))
    assert "[l0] size" in str(caught.value.hint)
    assert rig.generate(prompt(60), 4).tokens == cold(prompt(60), 4)


def test_what_does_not_fit_beside_others_waits() -> None:
    rig = fresh(8)
    sequences = [rig.engine.submit(Request(tuple(prompt(60, seed=n)), 30)) for n in range(4)]
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, rig.engine.num_running)

    rig.run(look)
    assert most == 1
    for n, sequence in enumerate(sequences):
        assert rig.answer(sequence).tokens == cold(prompt(60, seed=n), 30)


def test_stops_on_tokens_and_text_unless_told_not_to() -> None:
    full = cold(prompt(10), 20)
    eos = full[6]
    end = full.index(eos) + 1
    rig = make_rig(AddingModel(TINY, 64), TINY, 64, eos_tokens=[eos])
    stopped = rig.generate(prompt(10), 20)
    assert (stopped.tokens, stopped.finish_reason) == (full[:end], "stop")
    assert rig.generate(prompt(10), 20, ignore_eos=True).tokens == full
    assert (
        rig.generate(prompt(10), 20, ignore_eos=True, stop_tokens=frozenset([eos])).tokens
        == full[:end]
    )
    text = "".join(chr(97 + t % 26) for t in full)
    by_text = rig.generate(prompt(10), 20, ignore_eos=True, stop=(text[8:12],))
    assert by_text.tokens == full[: text.index(text[8:12]) + 4]
    assert by_text.finish_reason == "stop"


def test_seeded_sampling_is_repeatable_and_independent_of_company() -> None:
    how = Sampling(temperature=1.0, seed=5)
    alone = cold(prompt(20), 12, sampling=how)
    rig = fresh(128)
    sequences = [
        rig.engine.submit(Request(tuple(prompt(20)), 12, Sampling(temperature=1.0, seed=seed)))
        for seed in (4, 5, 6)
    ]
    rig.run()
    assert rig.answer(sequences[1]).tokens == alone
    assert len({rig.answer(s).tokens for s in sequences}) == 3


@pytest.mark.parametrize("steps", [0, 1, 3, 6, 9])
def test_cancel_keeps_what_there_is_and_leaves_nothing_behind(steps: int) -> None:
    rig = fresh()
    sequence = rig.engine.submit(Request(tuple(prompt(200)), 20))
    other = rig.engine.submit(Request(tuple(prompt(30, seed=1)), 20))
    for _ in range(steps):
        rig.outcomes += rig.engine.step()
    rig.engine.cancel(sequence)
    rig.run()
    answer = rig.answer(sequence)
    assert answer.finish_reason == "cancelled"
    assert answer.tokens == cold(prompt(200), 20)[: len(answer.tokens)]
    assert rig.emitted(sequence) == list(answer.tokens)
    assert rig.answer(other).tokens == cold(prompt(30, seed=1), 20)
    rig.engine.evict_l0()
    assert rig.engine.l0().used_bytes == 0
    rig.engine.cancel(sequence)  # too late, and harmless
    assert rig.engine.idle


@pytest.mark.parametrize("at", [0, 70, 199, 203])
def test_a_failing_step_fails_its_sequence_only(at: int, caplog: pytest.LogCaptureFixture) -> None:
    model = AddingModel(TINY, 64)
    rig = make_rig(model, TINY, 64)
    other = rig.engine.submit(Request(tuple(prompt(30, seed=1)), 40))
    rig.outcomes += rig.engine.step()
    sequence = rig.engine.submit(Request(tuple(prompt(200)), 20))
    model.fail_at = at
    while sequence.state is not State.FINISHED:
        rig.outcomes += rig.engine.step()
        if other.num_computed + 1 == at:
            model.fail_at = None
    model.fail_at = None
    rig.run()
    assert isinstance(rig.error(sequence), EngineFailed)
    assert "tokens [" not in caplog.text + str(rig.error(sequence))
    assert "ValueError" in caplog.text
    assert rig.answer(other).tokens == cold(prompt(30, seed=1), 40)
    assert rig.generate(prompt(200), 20).tokens == cold(prompt(200), 20)


def test_all_that_decode_are_computed_in_one_forward() -> None:
    model = AddingModel(TINY, 64)
    rig = make_rig(model, TINY, 64)
    sequences = [rig.engine.submit(Request(tuple(prompt(30, seed=i)), 20)) for i in range(4)]
    while any(s.state is not State.DECODING for s in sequences):
        rig.outcomes += rig.engine.step()
    before, calls = model.num_forwards, len(model.calls)
    for _ in range(8):
        rig.outcomes += rig.engine.step()
    assert model.num_forwards - before == 8
    assert len(model.calls) - calls == 8 * 4
    rig.run()
    for index, sequence in enumerate(sequences):
        assert rig.answer(sequence).tokens == cold(prompt(30, seed=index), 20)
        assert rig.answer(sequence).timings_ms["decode"] > 0


@pytest.mark.parametrize("poison", [False, True])
def test_one_that_fails_among_those_computed_together_fails_alone(poison: bool) -> None:
    model = AddingModel(TINY, 64)
    rig = make_rig(model, TINY, 64)
    lengths = (30, 31, 50, 70)
    sequences = [rig.engine.submit(Request(tuple(prompt(n, seed=n)), 15)) for n in lengths]
    while any(s.state is not State.DECODING for s in sequences):
        rig.outcomes += rig.engine.step()
    if poison:
        model.poison_at = 60
    else:
        model.fail_at = 60
    rig.run()
    assert isinstance(rig.error(sequences[2]), EngineFailed)
    for length, sequence in zip(lengths, sequences, strict=True):
        if length != 50:
            assert rig.answer(sequence).tokens == cold(prompt(length, seed=length), 15)
    model.poison_at = model.fail_at = None
    assert rig.generate(prompt(50, seed=50), 15).tokens == cold(prompt(50, seed=50), 15)


@pytest.mark.parametrize("at", [5, 100, 190, 205])
def test_nothing_that_is_not_finite_is_sealed_or_left_in_a_slot(at: int) -> None:
    model = AddingModel(TINY, 64)
    rig = make_rig(model, TINY, 64)
    model.poison_at = at
    sequence = rig.engine.submit(Request(tuple(prompt(200)), 30))
    rig.run()
    assert isinstance(rig.error(sequence), EngineFailed)
    assert "finite" in rig.error(sequence).message
    model.poison_at = None
    assert all(abs(pool).sum() < float("inf") for pool in model.pool)
    again = rig.generate(prompt(200), 30)
    assert again.tokens == cold(prompt(200), 30)
    assert again.usage.prompt_tokens == 200


def test_a_full_store_costs_names_and_not_the_answer() -> None:
    class Full(MemoryStore):
        full = True

        def put(self, windows):  # type: ignore[no-untyped-def]
            if self.full:
                raise StoreFull("the disk is full")
            super().put(windows)

    store, model = Full(1 << 30), AddingModel(TINY, 64)
    memory = make_memory(TINY, model.numerics_class, store=store, arena_windows=4)
    rig = make_rig(model, TINY, 64, memory=memory)
    answer = rig.generate(prompt(200), 20)
    assert answer.tokens == cold(prompt(200), 20)
    assert answer.tip is None
    assert "disk is full" in str(answer.warning)
    store.full = False
    again = rig.generate(prompt(200), 20)
    assert (again.tokens, again.warning) == (answer.tokens, None)
    assert again.tip is not None


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            NotFound("window 0123456789ab is not known here"),
            "some were dropped before all were: raise [l1] size and [l2] size in glia.toml",
        ),
        (StoreFull("L2 is full", hint="raise [l2] size"), "L2 is full: raise [l2] size"),
        (StoreFull("it is full"), "it is full"),
    ],
)
def test_a_warning_says_what_to_change(
    error: GliaError, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(AddingModel(TINY, 64), TINY, 64)

    def flush(names: Sequence[WindowId]) -> None:
        raise error

    monkeypatch.setattr(rig.memory, "flush", flush)
    answer = rig.generate(prompt(200), 20)
    assert (answer.warning, answer.tip) == (f"windows are not on disk: {says}", None)


@pytest.mark.fault("F38")
@pytest.mark.parametrize("kind", ["match", "lease", "copy", "release"])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_restore_that_fails_leaves_l0_as_it_was(
    kind: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, model = (pair := _warm())
    del pair
    before = [pool.copy() for pool in model.pool]
    names = dict(rig.engine._residency._names)
    count = 0

    def failing(method):  # type: ignore[no-untyped-def]
        def call(*args, **more):  # type: ignore[no-untyped-def]
            nonlocal count
            count += 1
            result = method(*args, **more)
            if count == after + 1:
                raise StoreBroken("the disk is gone") if kind != "copy" else ValueError("no")
            return result

        return call

    owner = model if kind == "copy" else rig.memory
    name = {"match": "match", "lease": "lease_end", "copy": "restore", "release": "release"}[kind]
    monkeypatch.setattr(owner, name, failing(getattr(owner, name)))
    sequence = rig.engine.submit(Request(tuple(prompt(1600)), 8))
    pools = []
    admit = rig.engine._admission.admit

    def watched(s):  # type: ignore[no-untyped-def]
        try:
            admit(s)
        finally:
            pools.append(([p.copy() for p in model.pool], dict(rig.engine._residency._names)))

    monkeypatch.setattr(rig.engine._admission, "admit", watched)
    rig.run()
    if kind == "match" and after:
        assert rig.answer(sequence).warning is None  # one match a request: this one did not fail
        return
    (after_pool, after_names) = pools[0]
    assert after_names == names
    for slot in names:
        assert all((a[slot] == b[slot]).all() for a, b in zip(before, after_pool, strict=True))
    monkeypatch.undo()
    again = rig.generate(prompt(1600))
    assert again.tokens == fresh(256).generate(prompt(1600)).tokens
    if kind == "copy":
        assert isinstance(rig.error(sequence), EngineFailed)
    else:
        assert rig.answer(sequence).tokens == again.tokens
        assert "disk is gone" in str(rig.answer(sequence).warning)


def _warm() -> tuple[Rig, AddingModel]:
    """An engine whose L0 has a part of what L1 has."""
    model = AddingModel(TINY, 256)
    memory = make_memory(TINY, model.numerics_class, arena_windows=160)  # copied by 32 windows
    rig = make_rig(model, TINY, 256, memory=memory)
    rig.generate(prompt(1600))
    rig.engine.evict_l0()
    rig.generate(prompt(160, seed=3))
    return rig, model


def test_without_the_memory_below_the_engine_cannot_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = fresh()

    def gone(tokens: object, *, exact: bool, domain: object) -> None:
        raise NotRunning("gliad closed the connection")

    monkeypatch.setattr(rig.memory, "match", gone)
    rig.engine.submit(Request(tuple(prompt(20)), 4))
    with pytest.raises(NotRunning):
        rig.engine.step()


def test_an_arena_that_is_full_costs_names_only(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = fresh()

    def full() -> None:
        rig.memory._asked_seals.popleft()
        raise ArenaExhausted("every window of L1 is leased")

    monkeypatch.setattr(rig.memory, "seal_end", full)
    answer = rig.generate(prompt(100), 20)
    assert answer.tokens == cold(prompt(100), 20)
    assert "every window of L1 is leased" in str(answer.warning)


def test_a_step_tells_the_first_token_before_it_waits_for_the_disk() -> None:
    rig = fresh()
    sequence = rig.engine.submit(Request(tuple(prompt(20)), 1))
    kinds = [[type(o) for o in rig.engine.step()] for _ in range(2)]
    assert kinds == [[Prefilled, Emitted], [Finished]]
    assert sequence.state is State.FINISHED


def test_l0_counts_what_was_found_there() -> None:
    rig = fresh()
    rig.generate(prompt(100))
    assert (rig.engine.l0().num_hits, rig.engine.l0().num_misses) == (0, 6)
    rig.generate(prompt(100))
    assert (rig.engine.l0().num_hits, rig.engine.l0().num_misses) == (6, 6)
    freed_bytes, freed = rig.engine.evict_l0()
    assert freed == rig.engine.l0().num_evicted == 6
    assert freed_bytes == 6 * TINY.window_payload_bytes
    assert not any(isinstance(o, Broken) for o in rig.outcomes)
