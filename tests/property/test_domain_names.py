"""The domain of a group: what is public before it is everybody's, from there on all is its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.binding import Binding
from daemon.seal import Anchor, Sealed, seal_windows
from glia.graph.chain import longest_chain, prefix_keys, walk
from glia.graph.domain import Salt, domain_of
from glia.graph.group import GroupId, GroupSecret
from glia.graph.ids import PrefixKey, WindowId
from glia.graph.publishable import public_windows
from glia.graph.tokens import pack_tokens
from tests.builders import CLASS, MODEL, TINY, make_payload, make_tokens

BINDING = Binding(MODEL, TINY, CLASS)
SIZE = TINY.block_size
GROUP, OTHER = GroupId(b"g" * 32), GroupId(b"o" * 32)
SECRET, ELSE = GroupSecret(b"s" * 32), GroupSecret(b"e" * 32)


def sealed(tokens: Sequence[int], salt: Salt | None, num_at_once: int = 100) -> list[Sealed]:
    """The windows of a prompt, with the K and V that a model would give: of its tokens alone."""
    made: list[Sealed] = []
    anchor = Anchor(BINDING.root, BINDING.root_blocks, BINDING.root_key, 0)
    step, num = SIZE * num_at_once, TINY.window_particle_bytes
    for at in range(0, len(tokens), step):
        part = tokens[at : at + step]
        count = len(part) // SIZE
        staging = make_payload(count * TINY.window_payload_bytes, tuple(tokens[: at + step]))
        arena = memoryview(bytearray(count * num))
        offsets = [num * index for index in range(count)]
        made += seal_windows(BINDING, anchor, part, memoryview(staging), arena, offsets, salt)
        anchor = made[-1].end
    return made


def names_of(windows: Sequence[Sealed]) -> list[set[bytes]]:
    """All that each window can be known by."""
    return [{w.record.window_id, w.record.prev, w.key, *w.record.blocks} for w in windows]


@pytest.mark.spec(49)
@given(st.integers(1, 5), st.integers(0, 5), st.integers(0, 2**31))
def test_from_its_first_window_on_no_name_is_anybody_elses(num: int, start: int, seed: int) -> None:
    tokens = make_tokens(num * SIZE, seed)
    plain = sealed(tokens, None)
    ours = sealed(tokens, Salt(GROUP, start * SIZE, SECRET))
    theirs = sealed(tokens, Salt(OTHER, start * SIZE, ELSE))
    assert ours[:start] == plain[:start] == theirs[:start]
    found = [set[bytes]().union(*names_of(one[start:])) for one in (plain, ours, theirs)]
    assert len(set[bytes]().union(*found)) == sum(map(len, found))
    assert [w.record.root is not None for w in ours] == [n == start for n in range(num)]
    keys = prefix_keys(MODEL, TINY, tokens, Salt(GROUP, start * SIZE, SECRET))
    assert keys == [w.key for w in ours]


@pytest.mark.spec(49)
@given(st.integers(1, 5), st.integers(0, 4), st.integers(1, 3))
def test_members_give_the_same_names_however_they_came_to_them(
    num: int, start: int, num_at_once: int
) -> None:
    tokens = make_tokens(num * SIZE)
    salt = Salt(GROUP, start * SIZE, SECRET)
    once = [sealed(tokens[: SIZE * n], salt)[-1].key for n in range(1, num + 1)]
    assert [w.key for w in sealed(tokens, salt, num_at_once)] == once


@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 6), st.booleans())
def test_a_chain_is_found_and_walked_through_where_a_domain_begins(
    num: int, start: int, gone: int, is_member: bool
) -> None:
    tokens = make_tokens(num * SIZE)
    salt = Salt(GROUP, start * SIZE, SECRET)
    windows = [*sealed(tokens, salt), *sealed(tokens, None)]
    known = {w.record.window_id: w.record for w in windows}
    by_key: dict[PrefixKey, list[WindowId]] = {}
    for w in windows:
        by_key.setdefault(w.key, []).append(w.record.window_id)
    here = windows[gone].record.window_id if gone < num else None
    known = {name: record for name, record in known.items() if name != here}

    def find(key: PrefixKey) -> list[WindowId]:
        return by_key.get(key, [])

    asked = salt if is_member else None
    chain = longest_chain(MODEL, TINY, tokens, find, known.get, (CLASS,), salt=asked)
    expected = [w.record for w in (windows if is_member else windows[num:])[:num]]
    cut = gone if gone < num and (is_member or gone < start) else num
    assert chain == expected[:cut]
    if chain:
        assert walk(chain[-1].window_id, known.get) == chain
    # A salted record whose root is not known is found all the same, and leads nowhere.
    rootless = {name: replace(record, root=None) for name, record in known.items()}
    assert longest_chain(MODEL, TINY, tokens, find, rootless.get, (CLASS,), salt=asked) == chain


@pytest.mark.spec(50)
@given(st.integers(1, 5), st.integers(0, 5))
def test_nothing_of_a_domain_is_public_whatever_its_tokens(num: int, start: int) -> None:
    tokens = make_tokens(num * SIZE)
    records = [w.record for w in sealed(tokens, Salt(GROUP, start * SIZE, SECRET))]
    assert public_windows(records, pack_tokens(tokens)) == records[:start]


@given(st.integers(0, 100))
def test_a_domain_begins_with_the_window_that_is_not_wholly_public(num_public: int) -> None:
    domain = domain_of(GROUP, num_public, SIZE)
    assert domain is not None
    assert domain.start % SIZE == 0 <= num_public - domain.start < SIZE
    assert domain_of(None, num_public, SIZE) is None
    assert SECRET not in repr(Salt(GROUP, domain.start, SECRET)).encode()
