"""Real small models, the real engine, the shipped in-process memory: what is reused is exact."""

from __future__ import annotations

import pytest
import torch

from glia.engine.load import load_model
from glia.engine.loaded import LoadedModel
from glia.engine.sequence import Request, Sequence, State
from glia.engine.testing import LocalMemory
from glia.errors import StoreBroken
from glia.graph.chain import walk
from glia.graph.ids import WindowId
from glia.graph.profile import KvScheme, PositionMode, Profile
from glia.graph.sampling import Sampling
from glia.graph.window import WindowRecord
from glia.store.memory import MemoryStore
from tests.engine_parts import Rig, make_memory, make_rig
from tests.model_parts import save_tiny, seeded_tokens, settings, tiny_stock

VOCABULARY = 96
LENGTHS = [1, 15, 16, 17, 127, 128, 129, 300]
SHAPES = {
    "grouped f32": ("llama", {}, {}),
    "multi-head bf16": (
        "qwen2",
        {"num_key_value_heads": 4},
        {"dtype": "bfloat16", "scheme": KvScheme.BF16},
    ),
    "single head f32 kept as f16": ("llama", {"num_key_value_heads": 1}, {"scheme": KvScheme.F16}),
    "65,536-byte blocks": (
        "llama",
        {"num_key_value_heads": 8, "num_attention_heads": 8, "head_dim": 128},
        {"dtype": "float16", "scheme": KvScheme.F16, "l0_bytes": 32 << 20},
    ),
}


class Parts:
    """A loaded model, and engines over it."""

    def __init__(self, model: LoadedModel, scheme: KvScheme) -> None:
        self.model = model
        self.profile = Profile(model.block_size, scheme, PositionMode.RELATIVE, model.shapes)

    def rig(
        self,
        store: MemoryStore | None = None,
        *,
        arena_windows: int = 256,
        num_slots: int | None = None,
        prefill_tokens: int = 128,
    ) -> Rig:
        self.model.clear(range(self.model.num_slots))  # as in a process of its own
        memory = make_memory(
            self.profile, self.model.numerics_class, store=store, arena_windows=arena_windows
        )
        return make_rig(
            self.model,
            self.profile,
            num_slots or self.model.num_slots,
            memory=memory,
            prefill_tokens=prefill_tokens,
        )


@pytest.fixture(scope="module", params=SHAPES)
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    torch.set_num_threads(1)
    kind, changes, how = SHAPES[request.param]
    path = save_tiny(tmp_path_factory.mktemp("models") / "m", kind, **changes)
    loading = settings(**how)
    return Parts(load_model(path, loading), loading.scheme)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    torch.set_num_threads(1)
    path = save_tiny(tmp_path_factory.mktemp("models") / "m", "llama")
    return Parts(load_model(path, settings()), KvScheme.F32)


def prompt(num_tokens: int, seed: int = 0) -> list[int]:
    return [3 + token % (VOCABULARY - 3) for token in seeded_tokens(num_tokens, VOCABULARY, seed)]


def chain_of(rig: Rig, tokens: list[int], max_tokens: int = 24) -> list[WindowRecord]:
    answer = rig.generate(tokens, max_tokens)
    assert isinstance(rig.memory, LocalMemory)
    return walk(answer.tip, rig.memory._store.get) if answer.tip else []


@pytest.mark.spec(20, 24, 70)
@pytest.mark.parametrize("length", LENGTHS)
def test_every_tier_gives_the_cold_tokens_and_names(parts: Parts, length: int) -> None:
    store = MemoryStore(1 << 28)
    rig = parts.rig(store)
    cold = rig.generate(prompt(length), 20)
    assert cold.usage.computed == length
    cached = (length - 1) // 16 * 16
    for tier in ("l0", "l1", "l2", "restart"):
        if tier in ("l1", "l2"):
            rig.engine.evict_l0()
        if tier == "l2":
            rig.memory.drop_l1()
        if tier == "restart":
            rig = parts.rig(store)
        warm = rig.generate(prompt(length), 20)
        assert (warm.tokens, warm.tip) == (cold.tokens, cold.tip)
        assert getattr(warm.usage, "l2" if tier == "restart" else tier) == cached
        assert warm.usage.prompt_tokens == length
        assert warm.usage.computed == length - cached


@pytest.mark.spec(20)
@pytest.mark.parametrize("length", [16, 40, 128])
def test_from_the_tip_and_the_tail_alone_a_fresh_process_goes_on(parts: Parts, length: int) -> None:
    store = MemoryStore(1 << 28)
    first = parts.rig(store).generate(prompt(length), 21)
    assert first.tip is not None
    known = [t for record in walk(first.tip, store.get) for t in record.tokens]
    said = prompt(length) + list(first.tokens)
    tail = said[len(known) :]
    assert len(tail) < 16
    assert known + tail == said
    resumed = parts.rig(store).generate(known + tail, 10)
    assert resumed.usage.l2 == (len(said) - 1) // 16 * 16
    assert first.tokens + resumed.tokens == parts.rig().generate(prompt(length), 31).tokens


@pytest.mark.spec(12)
def test_decoded_and_prefilled_windows_get_the_same_names(parts: Parts) -> None:
    assert parts.model.decode_is_exact
    decoded = chain_of(parts.rig(), prompt(20), 100)
    tokens = [t for record in decoded for t in record.tokens]
    assert len(tokens) == 112
    for prefill_tokens in (16, 48, 512):
        prefilled = chain_of(parts.rig(prefill_tokens=prefill_tokens), tokens, 1)
        assert [r.window_id for r in prefilled] == [r.window_id for r in decoded]


@pytest.mark.spec(11)
@pytest.mark.parametrize("first_other", [0, 15, 16, 40, 111])
def test_prompts_share_exactly_the_names_before_they_differ(parts: Parts, first_other: int) -> None:
    one = prompt(112)
    two = list(one)
    two[first_other] = 3 + (two[first_other] + 1) % 90
    left, right = chain_of(parts.rig(), one, 1), chain_of(parts.rig(), two, 1)
    shared = first_other // 16
    for index, (a, b) in enumerate(zip(left, right, strict=True)):
        for a_block, b_block in zip(a.blocks, b.blocks, strict=True):
            assert (a_block == b_block) == (index < shared)


@pytest.mark.spec(5, 51)
def test_agents_with_one_system_prompt_compute_it_and_keep_it_once(parts: Parts) -> None:
    store = MemoryStore(1 << 28)
    rig = parts.rig(store)
    system = prompt(160)
    sequences = [
        rig.engine.submit(Request(tuple(system + prompt(20, seed=n)), 1)) for n in range(1, 7)
    ]
    rig.run()
    computed = sum(rig.answer(s).usage.computed for s in sequences)
    assert computed == 160 + 6 * 20
    windows = store.stats().num_windows
    assert windows == 10 + 6
    assert rig.engine.l0().num_windows == windows
    assert store.stats().num_blocks == windows * len(parts.profile.layers)
    later = parts.rig(store)  # another process
    again = later.generate(system + prompt(20, seed=7), 1)
    assert (again.usage.l2, again.usage.computed) == (160, 20)


@pytest.mark.spec(4)
def test_only_full_windows_get_names(llama: Parts) -> None:
    store = MemoryStore(1 << 28)
    rig = llama.rig(store)
    for length, max_tokens in [(3, 4), (15, 1), (14, 1), (31, 10), (20, 11)]:
        before = store.stats().num_windows
        answer = rig.generate(prompt(length, seed=length), max_tokens)
        whole = (length + max_tokens) // 16
        assert store.stats().num_windows - before == whole
        assert (answer.tip is None) == (whole == 0)


@pytest.mark.spec(6)
def test_a_fork_changes_nothing_of_its_sibling(parts: Parts) -> None:
    alone = parts.rig().generate(prompt(70), 40)
    rig = parts.rig()
    sequence = rig.engine.submit(Request(tuple(prompt(70)), 40))
    while len(sequence.answer) < 9:
        rig.outcomes += rig.engine.step()
    used = rig.engine.l0().used_bytes
    twin = rig.engine.fork(sequence)
    assert twin.table == sequence.table[: len(sequence.chain)]
    assert rig.engine.l0().used_bytes == used
    twin.tokens[-1] = 3 + (twin.tokens[-1] + 1) % 90
    turned = list(twin.tokens)
    rig.run()
    assert rig.answer(sequence).tokens == alone.tokens
    assert rig.answer(sequence).tip == alone.tip
    other = parts.rig().generate(turned, 31)
    assert rig.answer(twin).tokens[9:] == other.tokens
    assert rig.answer(twin).tip == other.tip


@pytest.mark.spec(39)
def test_requests_that_join_and_leave_get_what_each_would_get_alone(parts: Parts) -> None:
    system = prompt(48)
    asked = [(system + prompt(20, seed=n), 30 - 6 * n) for n in range(1, 5)]
    expected = [parts.rig().generate(*each) for each in asked]
    rig = parts.rig()
    running = []
    for tokens, max_tokens in asked:
        running.append(rig.engine.submit(Request(tuple(tokens), max_tokens)))
        while running[-1].state is not State.DECODING:
            rig.outcomes += rig.engine.step()
    assert [s.state for s in running] == [State.DECODING] * 4
    assert {tuple(s.table[:3]) for s in running} == {tuple(running[0].table[:3])}
    left = running[1]
    rig.engine.cancel(left)
    rig.engine.evict_l0()
    rig.generate(prompt(90, seed=9), 5)
    rig.run()
    for sequence, alone in zip(running, expected, strict=True):
        if sequence is not left:
            assert rig.answer(sequence).tokens == alone.tokens
            assert rig.answer(sequence).tip == alone.tip


@pytest.mark.spec(24)
@pytest.mark.parametrize("arena_windows", [2, 5, 200])
@pytest.mark.parametrize("num_slots", [22, 40])
def test_tokens_do_not_depend_on_the_sizes_of_the_tiers(
    llama: Parts, arena_windows: int, num_slots: int
) -> None:
    rig = llama.rig(arena_windows=arena_windows, num_slots=num_slots)
    expected = [llama.rig().generate(prompt(200, seed=n) + prompt(100), 30) for n in range(3)]
    for n in (0, 1, 0, 2, 1, 0):
        answer = rig.generate(prompt(200, seed=n) + prompt(100), 30)
        assert (answer.tokens, answer.tip) == (expected[n].tokens, expected[n].tip)
        assert answer.usage.prompt_tokens == 300
    assert answer.usage.computed == 300 - 288


@pytest.mark.spec(27)
@pytest.mark.parametrize("arena_windows", [5, 200])
def test_a_slot_is_used_again_only_when_its_bytes_are_a_tier_down(
    llama: Parts, arena_windows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(1 << 28)
    rig = llama.rig(store, arena_windows=arena_windows, num_slots=22)
    memory, pool, shape = rig.memory, llama.model._pool, llama.profile.layers[-1]
    residency, evicted = rig.engine._residency, list[str]()
    free_named = residency._free_named

    def below(window_id: WindowId) -> tuple[str, bytes]:
        """Its tier, and what the last layer's particle is there."""
        extent, record = memory._resident.get(window_id), memory._get(window_id)
        assert record is not None
        if extent is None:
            return "l2", store.read_block(record.blocks[-1])
        window = memory.arena.data[extent * memory._extent :][: memory._extent]
        return "l1", bytes(window[-llama.profile.particle_sizes[-1] :])

    def check(slot: int) -> None:
        tier, particle = below(residency._names[slot])
        payload = bytearray(particle[llama.profile.header_bytes :])
        raw = torch.frombuffer(payload, dtype=torch.float32).view(16, -1, 2 * shape.head_dim)
        values = pool._values[-1][:, slot * 16 : slot * 16 + 16].transpose(0, 1)
        assert torch.equal(values, raw[..., shape.head_dim :])
        evicted.append(tier)
        free_named(slot)

    monkeypatch.setattr(residency, "_free_named", check)
    for seed in range(4):
        rig.generate(prompt(200, seed=seed), 30)
    assert len(evicted) > 20
    assert set(evicted) == ({"l1"} if arena_windows == 200 else {"l1", "l2"})


@pytest.mark.spec(22)
def test_a_hole_is_never_skipped(llama: Parts) -> None:
    class Holey(MemoryStore):
        bad: bytes = b""

        def load(self, window_ids, into):  # type: ignore[no-untyped-def]
            found = super().load(window_ids, into)
            return [w != self.bad and ok for w, ok in zip(window_ids, found, strict=True)]

    store = Holey(1 << 28)
    cold = llama.rig(store).generate(prompt(300), 10)
    assert cold.tip is not None
    for hole in (0, 7, 17):
        store.bad = walk(cold.tip, store.get)[hole].window_id
        answer = llama.rig(store).generate(prompt(300), 10)
        assert (answer.tokens, answer.tip) == (cold.tokens, cold.tip)
        assert (answer.usage.l2, answer.usage.computed) == (16 * hole, 300 - 16 * hole)


def test_company_changes_no_token(parts: Parts) -> None:
    requests = [
        Request(tuple(prompt(30 * n + 1, seed=n)), 20, Sampling(temperature=0.8 * (n % 2), seed=n))
        for n in range(5)
    ]
    alone = []
    for request in requests:
        rig = parts.rig()
        sequence = rig.engine.submit(request)
        rig.run()
        alone.append(rig.answer(sequence))
    rig = parts.rig()
    sequences = [rig.engine.submit(request) for request in requests]
    rig.run()
    for sequence, expected in zip(sequences, alone, strict=True):
        assert rig.answer(sequence).tokens == expected.tokens
        assert rig.answer(sequence).tip == expected.tip


@pytest.mark.spec(9)
@pytest.mark.parametrize("length", [1, 16, 17, 200])
def test_greedy_tokens_equal_stock_transformers(llama: Parts, length: int) -> None:
    stock = tiny_stock("llama")
    out = stock.generate(
        torch.tensor([prompt(length)]),
        attention_mask=torch.ones(1, length, dtype=torch.long),
        max_new_tokens=30,
        min_new_tokens=30,
        do_sample=False,
        eos_token_id=None,
    )
    answer = llama.rig().generate(prompt(length), 30)
    assert list(answer.tokens) == out[0, length:].tolist()


def test_weights_that_give_no_numbers_fail_the_request_only(llama: Parts) -> None:
    rig = llama.rig()
    expected = rig.generate(prompt(40), 8)
    rig.engine.evict_l0()
    real = llama.model.forward
    try:
        llama.model.forward = lambda *args: real(*args) * float("nan")  # type: ignore[method-assign]
        sequence = rig.engine.submit(Request(tuple(prompt(60, seed=1)), 8))
        rig.run()
    finally:
        del llama.model.forward
    assert "finite" in rig.error(sequence).message
    assert rig.generate(prompt(40), 8).tokens == expected.tokens


@pytest.mark.spec(65)
@pytest.mark.fault("F38")
@pytest.mark.parametrize("step", ["match", "lease_end", "restore"])
@pytest.mark.parametrize("call", [0, 1])
def test_a_restore_that_fails_changes_nothing(
    llama: Parts, step: str, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = llama.rig(arena_windows=40)  # small copies: several of each step
    expected = rig.generate(prompt(300), 10)
    rig.engine.evict_l0()
    kept = rig.generate(prompt(100, seed=1), 10)
    pool = llama.model._pool
    before = [tensor.clone() for tensor in (*pool._keys, *pool._values)]
    owner = llama.model if step == "restore" else rig.memory
    real, count = getattr(owner, step), 0

    def failing(*args: object, **named: object) -> object:
        nonlocal count
        count += 1
        if count == (1 if step == "match" else call + 1):
            raise StoreBroken("the disk is gone")
        return real(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, failing)
        places = rig.engine._admission
        restore = places._restore

        def watched(sequence: Sequence, names: list[WindowId]) -> list[int]:
            if not names:  # the restore has failed: all will be computed
                slots = list(rig.engine._residency._names)
                rows = torch.cat([torch.arange(16) + 16 * slot for slot in slots])
                now = (*pool._keys, *pool._values)
                assert all(
                    torch.equal(a[:, rows], b[:, rows]) for a, b in zip(before, now, strict=True)
                )
            return restore(sequence, names)

        patched.setattr(places, "_restore", watched)
        answer = rig.generate(prompt(300), 10)
    assert (answer.tokens, answer.tip) == (expected.tokens, expected.tip)
    assert answer.usage.computed == 300
    assert "the disk is gone" in str(answer.warning)
    assert isinstance(rig.memory, LocalMemory)
    assert rig.memory.num_leases == 0
    assert rig.generate(prompt(100, seed=1), 10).tokens == kept.tokens
    again = rig.generate(prompt(300), 10)
    assert (again.tokens, again.warning) == (expected.tokens, None)
