"""What goes with conversations, against a model that knows nothing but token prefixes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.attachments import Layout
from daemon.doomed import AllTiers, Doomed, doomed_with
from daemon.reach import LogKeys, keys_ever
from glia.graph.chain import prefix_keys
from glia.graph.conversation import Turn
from glia.graph.ids import ModelId, PrefixKey, WindowId
from glia.store.memory import MemoryStore
from tests.builders import MODEL, TINY, make_chain
from tests.store_parts import sealed

SIZE = TINY.block_size
LAYOUT = Layout(TINY.profile_id, SIZE)
LAYOUTS = {MODEL: {LAYOUT}}
WORDS = 3  # windows that differ: few, so that logs share what they begin with
Log = tuple[int, ...]


def window(word: int) -> Log:
    return (word,) * SIZE


def silent(done: int, total: int) -> None:
    assert 0 <= done <= total


class Talks:
    """What Past says, without files: turns by name."""

    def __init__(self, turns: dict[str, list[Turn]]) -> None:
        self._turns = turns
        self.kept = dict.fromkeys(turns)

    def model_id(self, name: str) -> ModelId:
        return MODEL

    def turns(self, name: str) -> tuple[Turn, ...]:
        return tuple(self._turns[name])


def logs_of(turns: Iterable[Turn]) -> Iterator[Log]:
    """The log after each turn."""
    log: Log = ()
    for turn in turns:
        log = (*log[: turn.keep], *turn.tokens)
        yield log


def prefixes(logs: Iterable[Log]) -> set[Log]:
    """Every whole-window prefix of these."""
    return {log[:end] for log in logs for end in range(SIZE, len(log) + 1, SIZE)}


@st.composite
def conversation(draw: st.DrawFn) -> list[Turn]:
    turns: list[Turn] = []
    length = 0
    for number in range(draw(st.integers(1, 3))):
        keep = draw(st.integers(0, length)) if number else 0
        words = draw(st.lists(st.integers(0, WORDS - 1), max_size=3))
        tail = draw(st.integers(0, SIZE - 1))
        tokens = [token for word in words for token in window(word)] + [9] * tail
        turns.append(Turn(0, keep, tuple(tokens), (), None))
        length = keep + len(tokens)
    return turns


@given(conversation(), st.data())
def test_keys_of_a_log_are_those_of_its_tokens(turns: list[Turn], data: st.DataObject) -> None:
    expected: set[PrefixKey] = set()
    log = LogKeys(MODEL, LAYOUT)
    for turn, tokens in zip(turns, logs_of(turns), strict=True):
        log.apply(turn)
        assert log.keys == prefix_keys(MODEL, TINY, tokens)
        expected |= set(log.keys)
    assert log.ever == expected == keys_ever(MODEL, [LAYOUT], turns)
    other = data.draw(conversation())
    theirs = keys_ever(MODEL, [LAYOUT], other)
    assert keys_ever(MODEL, [LAYOUT], turns, theirs) == expected & theirs


@settings(max_examples=60, deadline=None)
@given(
    st.lists(conversation(), min_size=1, max_size=4),
    st.lists(st.lists(st.integers(0, WORDS - 1), min_size=1, max_size=4), max_size=3),
    st.integers(0, 3),
    st.booleans(),
    st.data(),
)
def test_what_goes_is_what_only_they_reach_and_what_continues_it(
    talks: list[list[Turn]],
    strays: list[list[int]],
    num_targets: int,
    is_forked: bool,
    data: st.DataObject,
) -> None:
    store, by_prefix = MemoryStore(1 << 24), {}
    talks = [*talks, talks[0]] if is_forked else talks
    stray_logs = [tuple(t for word in words for t in window(word)) for words in strays]
    last = list(logs_of(talks[0]))[-1]
    stray_logs += [(*last[: len(last) // SIZE * SIZE], *log) for log in stray_logs]  # turns failed
    every = prefixes([log for turns in talks for log in logs_of(turns)] + stray_logs)
    for prefix in every:
        chain = make_chain(len(prefix) // SIZE, tokens=prefix)
        by_prefix[prefix] = chain.tip
        store.put(sealed(chain))
    gone = data.draw(st.sets(st.sampled_from(sorted(every)))) if every else set()
    leaves = [p for p in gone if not any(o != p and o[: len(p)] == p for o in every)]
    store.forget([by_prefix[leaf] for leaf in leaves])  # as eviction does: leaves first
    stored = every - set(leaves)

    named = {str(number): turns for number, turns in enumerate(talks)}
    targets = {n: turns for n, turns in named.items() if int(n) < num_targets}
    others = {n: turns for n, turns in named.items() if n not in targets}
    tiers = AllTiers(store.find, store.get, store.children, lambda name: False)
    doomed = doomed_with(Talks(targets), Talks(others), LAYOUTS, tiers, silent)  # type: ignore[arg-type]

    own = prefixes(log for turns in targets.values() for log in logs_of(turns)) & stored
    theirs = prefixes(log for turns in others.values() for log in logs_of(turns))
    exclusive = own - theirs
    ends = {log[: len(log) // SIZE * SIZE] for turns in targets.values() for log in logs_of(turns)}
    failed = {p for p in stored - theirs if p[:-SIZE] in ends and p[:-SIZE] in stored}
    expected = {p for p in stored if any(p[: len(e)] == e for e in exclusive | failed)}
    assert {WindowId(by_prefix[p]) for p in expected} == set(doomed.key_of)
    assert doomed.num_saved == len(own & theirs)

    prompt = data.draw(st.sampled_from(sorted(stored))) if stored else ()
    doomed.save_prompt(MODEL, [*prompt, 9])
    saved = {p for p in expected if prompt[: len(p)] == p}
    assert {WindowId(by_prefix[p]) for p in expected - saved} == set(doomed.key_of)


def test_a_request_that_says_what_continued_it_keeps_that_too() -> None:
    store = MemoryStore(1 << 24)
    log, stray = window(0), (*window(0), *window(1))
    store.put(sealed(make_chain(2, tokens=stray)))
    tiers = AllTiers(store.find, store.get, store.children, lambda name: False)
    talks = Talks({"gone": [Turn(0, 0, log, (), None)]})
    doomed = doomed_with(talks, Talks({}), LAYOUTS, tiers, silent)  # type: ignore[arg-type]
    assert len(doomed.key_of) == 2
    doomed.save_prompt(MODEL, [*stray, 9])
    assert not doomed.key_of


def test_only_the_models_that_it_is_about_are_read() -> None:
    read = defaultdict(int)

    class Other(Talks):
        def model_id(self, name: str) -> ModelId:
            return ModelId(bytes(32))

        def turns(self, name: str) -> tuple[Turn, ...]:
            read[name] += 1
            return super().turns(name)

    doomed = Doomed(LAYOUTS, set())
    doomed.add(WindowId(bytes(32)), None)
    doomed.save_from(Other({"a": []}), silent)  # type: ignore[arg-type]
    assert not read


def test_nobody_is_read_once_nothing_would_go() -> None:
    store = MemoryStore(1 << 24)
    read: list[str] = []

    class Told(Talks):
        def turns(self, name: str) -> tuple[Turn, ...]:
            read.append(name)
            return super().turns(name)

    store.put(sealed(make_chain(1, tokens=window(0))))
    tiers = AllTiers(store.find, store.get, store.children, lambda name: False)
    turns = [Turn(0, 0, window(0), (), None)]
    forks = Told({f"fork{number}": turns for number in range(5)})
    doomed = doomed_with(Talks({"trunk": turns}), forks, LAYOUTS, tiers, silent)  # type: ignore[arg-type]
    assert (doomed.num_saved, len(doomed.key_of)) == (1, 0)
    assert read == ["fork0"]
