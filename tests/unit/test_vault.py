"""A group's windows in L2: ciphertext on disk, found by members, kept in order, through epochs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from glia.errors import NotFound
from glia.graph.group import Epoch, GroupId
from glia.graph.ids import WindowId, digest
from glia.store.base import EncryptedDown, SealedWindow
from glia.store.keyring import Keyring
from glia.store.vault import Vault
from tests.domain_parts import SIZE
from tests.store_parts import flip_bit, joined, load, segment_files
from tests.vault_parts import GROUP, NEW, OLD, SECRET, START, Node, names_of, windows_of


def assert_here(node: Node, windows: Sequence[SealedWindow]) -> None:
    """All of them, by every question, as they were put."""
    vault = node.vault
    assert load(vault, windows) == [joined(window) for window in windows]
    for window in windows:
        record = window.record
        found = vault.get(record.window_id)
        assert found == record
        assert found is not None
        assert (found.group, found.root) == (record.group, record.root)
        assert record.window_id in vault.find(window.prefix_key)
    for before, after in pairwise(windows):
        assert after.record.window_id in vault.children(before.record.window_id)
    assert set(names_of(windows)) <= set(vault.windows())


def test_what_is_a_groups_lies_there_as_ciphertext_and_is_found_all_the_same(
    tmp_path: Path,
) -> None:
    windows = windows_of()
    node = Node(tmp_path / "store", OLD)
    node.vault.put(windows)
    assert_here(node, windows)
    assert len(node.encrypted()) == 3
    node.vault.close()
    raw = b"".join(path.read_bytes() for path in node.path.rglob("*") if path.is_file())
    for number, window in enumerate(windows):
        record = window.record
        told = [record.window_id, *record.blocks, window.prefix_key, SECRET, OLD.key]
        told += [particle[200:232] for particle in window.particles]
        told.append(record.encoding[120 : 120 + 4 * SIZE])
        is_public = number < START
        secrets = told if not is_public else [SECRET, OLD.key]
        assert not [secret for secret in secrets if bytes(secret) in raw]
        assert not is_public or all(bytes(each) in raw for each in told if each not in secrets)
    node.open()
    assert_here(node, windows)
    node.vault.close()


def test_the_index_is_built_again_without_a_key(tmp_path: Path) -> None:
    windows = windows_of()
    node = Node(tmp_path / "store", OLD)
    node.vault.put(windows)
    node.vault.close()
    shutil.rmtree(node.path / "index")
    node.epochs = ()
    node.open()
    assert len(node.encrypted()) == 3
    assert names_of(windows[:2]) == [n for n in names_of(windows) if node.vault.get(n)]
    assert load(node.vault, windows[2:]) == [None] * 3
    assert set(node.vault.windows()) & set(names_of(windows)) == set(names_of(windows[:2]))
    node.epochs = (OLD,)
    assert_here(node, windows)
    assert node.vault.check().bad == 0
    node.vault.close()


def test_a_segment_that_begins_with_an_encrypted_window_is_indexed_and_mended(
    tmp_path: Path,
) -> None:
    windows = windows_of()[2:]
    node = Node(tmp_path / "store", OLD)
    node.vault.put(windows)
    node.vault.close()
    (segment,) = segment_files(node.path)
    flip_bit(segment, 8 * 20)  # of the segment's head
    shutil.rmtree(node.path / "index")
    node.open()
    assert load(node.vault, windows) == [joined(window) for window in windows]
    assert node.vault.check().bad == 1
    assert node.vault.check().bad == 0
    node.vault.close()


def test_members_make_the_same_of_it_and_anybody_keeps_it(tmp_path: Path) -> None:
    windows = windows_of()
    one, two = Node(tmp_path / "one", OLD), Node(tmp_path / "two", OLD)
    for node in (one, two):
        node.vault.put(windows)
    assert {w.window_id for w in one.encrypted()} == {w.window_id for w in two.encrypted()}
    relay = Node(tmp_path / "relay")
    relay.vault.put(windows[:2])
    for window in sorted(one.encrypted(), key=lambda each: not each.is_first):
        buffer = memoryview(bytearray(window.sealed_bytes * len(window.blocks)))
        assert one.raw.load([window.window_id], [buffer]) == [True]
        size = window.sealed_bytes
        particles = [bytes(buffer[at : at + size]) for at in range(0, len(buffer), size)]
        assert list(map(digest, particles)) == list(window.blocks)
        (key,) = (
            w.prefix_key for w in windows[2:] if OLD.lookup_key(w.record.window_id) == window.alias
        )
        relay.raw.put([EncryptedDown(window, OLD.lookup_key(key), particles)])  # type: ignore[arg-type]
    assert load(relay.vault, windows[2:]) == [None] * 3
    relay.epochs = (OLD,)
    assert_here(relay, windows)
    for node in (one, two, relay):
        node.vault.close()


def test_a_new_epoch_seals_what_is_new_and_reads_what_is_old(tmp_path: Path) -> None:
    windows = windows_of(num=6)
    node = Node(tmp_path / "store", OLD)
    node.vault.put(windows[:4])
    before = {w.window_id for w in node.encrypted()}
    node.epochs = (OLD, NEW)
    node.vault.put(windows)  # what is here is not sealed anew
    found = node.encrypted()
    assert {w.window_id for w in found if w.epoch_id == OLD.epoch_id} == before
    assert sum(w.epoch_id == NEW.epoch_id for w in found) == 2
    assert_here(node, windows)
    node.epochs = (NEW,)
    assert [node.vault.get(n) is not None for n in names_of(windows)] == [
        True, True, False, False, True, True,
    ]  # fmt: skip
    node.epochs = ()
    late = windows_of(9)
    node.vault.put(late)  # of a group that was left meanwhile: for nobody
    assert len(node.encrypted()) == 4 + 3
    assert load(node.vault, late[2:]) == [None] * 3
    node.vault.close()


def test_a_flipped_bit_is_a_miss_and_never_wrong(tmp_path: Path) -> None:
    windows = windows_of()
    node = Node(tmp_path / "store", OLD)
    node.vault.put(windows)
    (segment,) = segment_files(node.path)
    data = segment.read_bytes()
    sealed = node.encrypted()[0]
    buffer = memoryview(bytearray(sealed.sealed_bytes * len(sealed.blocks)))
    assert node.raw.load([sealed.window_id], [buffer]) == [True]
    flip_bit(segment, 8 * (data.index(bytes(buffer[:64])) + 80))
    answers = load(node.vault, windows)
    assert answers.count(None) == 1
    assert all(a in (None, joined(w)) for a, w in zip(answers, windows, strict=True))
    assert node.vault.stats().num_quarantined == 1
    node.vault.close()


def test_leaves_go_before_roots_also_where_a_domain_begins(tmp_path: Path) -> None:
    """What is used last is a group's: the public windows that it rests on stay with it."""
    ours, others = windows_of(0), [windows_of(n) for n in range(1, 12)]
    cap_bytes = 600_000  # of 70,000 each
    node = Node(tmp_path / "store", OLD, cap_bytes=cap_bytes)
    node.vault.put(ours)
    for windows in others:
        node.vault.touch(names_of(ours))
        node.vault.put(windows)
    assert node.vault.stats().num_evicted
    assert_here(node, ours)
    node.vault.spare(names_of(ours))
    for n in range(20, 32):
        node.vault.put(windows_of(n))
    assert_here(node, ours)
    node.vault.close()


def test_what_is_forgotten_is_gone_of_every_epoch(tmp_path: Path) -> None:
    ours, fork = windows_of(0), windows_of(1, base=0)
    node = Node(tmp_path / "store", OLD)
    node.vault.put([*ours, *fork])
    node.epochs = (NEW,)
    node.vault.put(ours[2:])
    node.epochs = (OLD, NEW)
    assert len(node.encrypted()) == 9
    gone = names_of(ours[2:])
    assert node.vault.forget(gone).num_windows == 6
    assert not [name for name in gone if node.vault.get(name) is not None]
    assert node.vault.children(ours[1].record.window_id) == [fork[2].record.window_id]
    assert_here(node, fork)
    node.vault.close()


@pytest.mark.spec(50)
def test_what_is_private_behind_a_group_s_is_this_node_s_alone(tmp_path: Path) -> None:
    """Also when another member has the disk: he opens what is the group's, nothing else."""
    windows = windows_of(num=6, num_shared=4)
    node = Node(tmp_path / "store", OLD)
    node.vault.put(windows)
    assert_here(node, windows)
    found = [node.vault.get(name) for name in names_of(windows)]
    assert [each is not None and each.is_own for each in found] == 4 * [False] + 2 * [True]
    shown = [node.vault.sealed(name) for name in names_of(windows)[2:]]
    assert [each is not None for each in shown] == [True, True, False, False]
    node.vault.close()
    thief = Node(tmp_path / "store", OLD, own=b"t" * 32)
    assert_here(thief, windows[:4])
    assert load(thief.vault, windows[4:]) == [None] * 2
    for window in windows[4:]:
        assert thief.vault.get(window.record.window_id) is None
        assert thief.vault.find(window.prefix_key) == []
    thief.vault.close()
    again = Node(tmp_path / "store", OLD, NEW)
    assert_here(again, windows)
    again.vault.forget([windows[4].record.window_id])
    assert load(again.vault, windows[4:5]) == [None]
    again.vault.close()


def test_what_was_private_and_is_the_group_s_elsewhere_is_sealed_for_it(tmp_path: Path) -> None:
    mine, theirs = windows_of(num_shared=3), windows_of()
    node = Node(tmp_path / "store", OLD)
    node.vault.put(mine)
    named = [(window.record.window_id, window.prefix_key) for window in theirs[2:]]
    tip = named[-1][0]
    assert node.vault.sealed(tip) is None
    node.vault.share(named)
    num = len(node.encrypted())
    node.vault.share(named)
    assert len(node.encrypted()) == num == 3 + 2
    at = node.vault.sealed(tip)
    for name, _ in reversed(named):
        assert at is not None
        assert (at.record.window_id, at.epoch) == (name, OLD)
        before, at = at, node.vault.opened(at.window.prev)
    assert before.window.is_first
    assert_here(node, theirs)
    node.vault.put(mine)
    node.vault.put(theirs)
    assert len(node.encrypted()) == num
    with pytest.raises(NotFound):
        node.vault.share([(WindowId(bytes(32)), named[0][1])])
    node.vault.close()


def test_a_miss_asks_for_the_epochs_that_are_here_and_no_others(tmp_path: Path) -> None:
    node = Node(tmp_path / "store", OLD)
    node.vault.put(windows_of())
    other = windows_of(7)
    crowd = [
        (
            GroupId(bytes([number]) * 32),
            [Epoch(n, bytes([number, n, 7, 7]) * 8) for n in range(1, 65)],
        )
        for number in range(64)
    ]
    node.vault = Vault(node.raw, Keyring(lambda: [*crowd, (GROUP, [OLD, NEW])], lambda: b"o" * 32))
    assert node.vault.get(other[2].record.window_id) is None  # which epochs are here is looked up
    asked: list[bytes] = []
    find = node.raw.find
    node.raw.find = lambda key: asked.append(key) or find(key)  # type: ignore[method-assign, func-returns-value]
    for window in other[2:]:
        assert node.vault.find(window.prefix_key) == []
        assert node.vault.get(window.record.window_id) is None
    assert len(asked) == 3 * (1 + 1 + 1), "the plain name's, and one of the one epoch, each"
    node.epochs = (OLD,)
    node.vault.close()


def test_all_of_a_group_is_told(tmp_path: Path) -> None:
    windows = windows_of(num=6, num_shared=4)
    node = Node(tmp_path / "store", OLD)
    node.vault.put(windows[:3])
    node.epochs = (OLD, NEW)
    node.vault.put(windows)
    encrypted = {window.window_id for window in node.encrypted()}
    assert set(node.vault.of_group(GROUP)) == encrypted | set(names_of(windows[2:]))
    assert node.vault.of_group(GroupId(bytes(32))) == []
    node.vault.forget(node.vault.of_group(GROUP))
    assert node.encrypted() == []
    assert set(node.vault.windows()) == set(names_of(windows[:2]))
    node.vault.close()
