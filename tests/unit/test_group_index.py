"""What groups publish: found by members' questions, taken back without a trace, apart by group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from glia.errors import NotFound
from glia.graph.encrypted import alias_of
from glia.graph.group import GroupId
from glia.store.group_index import GroupIndex
from glia.store.group_rows import GroupWindow
from tests.group_exchange_parts import Member, part_of
from tests.vault_parts import GROUP, NEW, START, windows_of

NUM = 20
WINDOWS = windows_of(num=NUM)
OTHER_GROUP = GroupId(b"o" * 32)


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    made = Member(tmp_path)
    made.node.vault.put(WINDOWS)
    yield made
    made.close()


def rows_of(index: GroupIndex) -> dict[bytes, bytes | None]:
    """All that is in it."""
    keys = [key for kind in (b"r", b"k", b"w", b"b", b"n", b"a") for key in index._index.keys(kind)]
    return {key: index._index.get(key) for key in keys}


def published(member: Member, num: int | None = None) -> list[GroupWindow]:
    member.publish(WINDOWS, num)
    return part_of(member.node, WINDOWS, num).rows()


def test_what_is_taken_back_leaves_what_was_there_before(member: Member, tmp_path: Path) -> None:
    """Row for row; windows that others continue stay."""
    first = published(member, 10)
    before = rows_of(member.index)
    rows = published(member)
    new = [row.name for row in rows[len(first) :]]
    assert member.index.take_back(GROUP, [row.name for row in first]) == []
    assert set(member.index.take_back(GROUP, new)) == set(new)
    after = rows_of(member.index)
    assert {key: value for key, value in after.items() if key[:1] != b"a"} == {
        key: value for key, value in before.items() if key[:1] != b"a"
    }
    assert member.index.match(GROUP, [(12, rows[9].alias)], lambda _: True) == []
    assert member.index.take_back(GROUP, [row.name for row in first])
    assert rows_of(member.index) == {}
    files = b"".join(each.read_bytes() for each in (tmp_path / "groups/index").iterdir())
    assert not any(row.name in files for row in rows)


def test_the_longest_is_matched_and_its_links_cover_it(member: Member) -> None:
    rows = published(member)
    keys = [(row.num_windows, row.alias) for row in rows]
    (found,) = member.index.match(GROUP, keys, lambda _: True)
    assert found.name == rows[-1].name
    (shorter,) = member.index.match(GROUP, keys, lambda row: row.num_windows <= 17)
    assert shorter.num_windows == 17
    assert len(member.index.chain_links(GROUP, found.name)) == 2
    assert member.index.match(GROUP, [(NUM - 1, rows[-1].alias)], lambda _: True) == []


def test_records_end_where_the_domain_begins(member: Member) -> None:
    rows = published(member)
    all_of_it = [row.encoding for row in rows]
    index, tip = member.index, rows[-1].name
    assert index.records(GROUP, tip, NUM, 0) == all_of_it
    assert index.records(GROUP, tip, NUM, NUM - 3) == all_of_it[-3:]
    assert index.records(GROUP, tip, NUM - 1, 0) == []
    by_alias = alias_of(NEW, WINDOWS[-1].record.window_id)
    assert index.records(GROUP, by_alias, NUM, START) == all_of_it  # type: ignore[arg-type]


def test_nothing_of_one_group_is_found_by_another(member: Member) -> None:
    rows = published(member)
    index = member.index
    for row in rows:
        assert index.window(OTHER_GROUP, row.name) is None
        assert not any(index.have_blocks(OTHER_GROUP, row.window().blocks))
        assert all(index.have_blocks(GROUP, row.window().blocks))
    keys = [(row.num_windows, row.alias) for row in rows]
    assert index.match(OTHER_GROUP, keys, lambda _: True) == []
    index.drop(OTHER_GROUP)
    assert index.window(GROUP, rows[0].name) is not None
    index.drop(GROUP)
    assert rows_of(index) == {}


def test_a_window_without_the_one_before_it_is_not_published(member: Member) -> None:
    rows = part_of(member.node, WINDOWS).rows()
    with pytest.raises(NotFound):
        member.index.put(GROUP, rows[1:])
    assert rows_of(member.index) == {}
