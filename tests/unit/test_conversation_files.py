"""What is found at start is kept, cut, set aside or refused; what cannot be written is not."""

from __future__ import annotations

import errno
import json
import logging
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from blake3 import blake3

from daemon.conversation_files import ConversationFiles, Opened
from glia.errors import StoreBroken, StoreFull, StoreVersion, UnknownConversation
from glia.graph.conversation import Turn
from glia.graph.journal import begin_file
from tests.conversation_parts import bytes_of
from tests.vectors import make_conversation
from tests.vectors.make_conversation import FILES

TALK = FILES["talk"]
DATA, _ = begin_file(TALK)
SHORT, _ = begin_file(TALK[:3])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "conversations"
    path.mkdir()
    (path / "talk.conv").write_bytes(DATA)
    return path


def opened(directory: Path) -> Opened:
    return ConversationFiles(directory).open()


def test_a_directory_of_before_there_were_any(tmp_path: Path) -> None:
    assert opened(tmp_path / "new") == Opened({}, {}, frozenset(), 0, 0)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_what_is_whole_is_taken_as_it_is(directory: Path) -> None:
    (directory / "fork.1.forget").write_bytes(begin_file(FILES["fork"])[0])
    before = bytes_of(directory)
    found = opened(directory)
    assert (list(found.live), list(found.marked)) == (["talk"], ["fork.1"])
    assert (found.num_cut, found.num_bad) == (0, 0)
    assert found.live["talk"].size_bytes == len(DATA)
    assert bytes_of(directory) == before


def test_what_an_older_gliad_wrote_is_written_anew(directory: Path) -> None:
    old = json.loads(make_conversation.FILE.with_name("conversation_1.json").read_text())["files"]
    (directory / "talk.conv").write_bytes(bytes.fromhex(old["talk"]))
    (directory / "talk.partial").write_bytes(b"left by a crash")
    (directory / "fork.1.forget").write_bytes(bytes.fromhex(old["fork"]))
    found = opened(directory)
    assert (found.num_cut, found.num_bad) == (0, 0)
    assert sorted(bytes_of(directory)) == ["fork.1.forget", "talk.conv"]
    assert (directory / "talk.conv").stat().st_mode & 0o777 == 0o600
    data = (directory / "talk.conv").read_bytes()
    assert data[:6] == b"GCNV\2\0"
    kept, turn = found.live["talk"], TALK[2]
    assert isinstance(turn, Turn)
    turn = replace(turn, keep=kept.head.num_tokens, messages=(), used_us=2**60)
    head = kept.head.extended(turn)
    grown = ConversationFiles(directory).append("talk", kept, head, turn)
    assert opened(directory).live["talk"] == grown
    before = bytes_of(directory)
    assert opened(directory).num_cut == 0
    assert bytes_of(directory) == before


def test_a_torn_file_of_an_older_gliad_is_cut_then_written_anew(directory: Path) -> None:
    old = json.loads(make_conversation.FILE.with_name("conversation_1.json").read_text())["files"]
    (directory / "talk.conv").write_bytes(bytes.fromhex(old["talk"])[:-1])
    found = opened(directory)
    assert (found.num_cut, found.num_bad, found.live["talk"].head.num_turns) == (1, 0, 2)
    assert opened(directory).num_cut == 0


@pytest.mark.parametrize("lost", [1, len(DATA) - len(SHORT) - 1])
def test_a_torn_tail_is_cut_off_and_said(
    directory: Path, caplog: pytest.LogCaptureFixture, lost: int
) -> None:
    (directory / "talk.conv").write_bytes(DATA[:-lost])
    with caplog.at_level(logging.WARNING):
        found = opened(directory)
    assert (found.num_cut, found.num_bad) == (1, 0)
    assert found.live["talk"].head.num_turns == 2
    assert (directory / "talk.conv").read_bytes() == SHORT
    (line,) = caplog.messages
    assert "talk.conv" in line
    assert f"{len(DATA) - len(SHORT) - lost} bytes" in line
    assert opened(directory).num_cut == 0


def test_zeros_behind_the_end_are_cut_off(directory: Path) -> None:
    (directory / "talk.conv").write_bytes(DATA + bytes(5000))
    found = opened(directory)
    assert (found.num_cut, found.num_bad) == (1, 0)
    assert (directory / "talk.conv").read_bytes() == DATA


@pytest.mark.parametrize("data", [b"", DATA[:20], b"\xff" + DATA[1:], bytes(500)])
def test_a_damaged_begin_is_set_aside_and_no_matter_to_others(
    directory: Path, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    (directory / "bad.conv").write_bytes(data)
    with caplog.at_level(logging.WARNING):
        found = opened(directory)
    assert list(found.live) == ["talk"]
    assert (found.num_cut, found.num_bad) == (0, 1)
    assert (directory / "bad.bad").read_bytes() == data
    (line,) = caplog.messages
    assert "bad.conv" in line
    assert "bad.bad" in line
    assert opened(directory).num_bad == 0


def test_one_that_the_disk_cannot_read_is_set_aside(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fork, _ = begin_file(FILES["fork"])
    for suffix in ("conv", "forget"):
        (directory / f"fork.1.{suffix}").write_bytes(fork)

    def read(path: Path, size_bytes: int) -> bytes:
        if path.name in ("talk.conv", "fork.1.forget"):
            raise OSError(errno.EIO, "Input/output error")
        return path.read_bytes()[:size_bytes]

    monkeypatch.setattr("daemon.mending.read_file", read)
    found = opened(directory)
    assert (list(found.live), list(found.marked), found.num_bad) == (["fork.1"], [], 2)
    assert (directory / "talk.bad").read_bytes() == DATA
    assert (directory / "fork.1.bad").read_bytes() == fork
    assert "talk.bad: the disk cannot read it" in caplog.text


def test_a_file_of_another_conversation_is_set_aside(directory: Path) -> None:
    os.rename(directory / "talk.conv", directory / "other.conv")
    found = opened(directory)
    assert (found.live, found.num_bad) == ({}, 1)
    assert (directory / "other.bad").read_bytes() == DATA


@pytest.mark.parametrize("at", [len(SHORT) - 1, len(SHORT) + 3, len(SHORT) + 6, len(DATA) - 1])
def test_damage_that_no_crash_makes_is_kept_as_it_is(
    directory: Path, caplog: pytest.LogCaptureFixture, at: int
) -> None:
    """In a body, with a whole turn behind it; in a frame; in the body of the last turn."""
    damaged = DATA[:at] + bytes([DATA[at] ^ 0xFF]) + DATA[at + 1 :]
    (directory / "talk.conv").write_bytes(damaged)
    with caplog.at_level(logging.WARNING):
        found = opened(directory)
    assert (found.num_cut, found.num_bad, found.aside) == (1, 1, {"talk"})
    assert (directory / "talk.bad").read_bytes() == damaged
    assert (directory / "talk.bad").stat().st_mode & 0o777 == 0o600
    assert (directory / "talk.conv").read_bytes() == DATA[: found.live["talk"].size_bytes]
    assert found.live["talk"].head.num_turns == (1 if at < len(SHORT) else 2)
    assert "talk.bad" in caplog.text
    again = opened(directory)
    assert (again.num_cut, again.num_bad, again.aside) == (0, 0, {"talk"})


def test_one_that_is_being_forgotten_is_not_copied(directory: Path) -> None:
    (directory / "talk.conv").rename(directory / "talk.forget")
    (directory / "talk.forget").write_bytes(DATA[: len(SHORT) - 1] + b"x" + DATA[len(SHORT) :])
    found = opened(directory)
    assert (list(found.marked), found.num_cut, found.num_bad) == (["talk"], 1, 0)
    assert list(bytes_of(directory)) == ["talk.forget"]


@pytest.mark.parametrize("num_zeros", [8, len(DATA) - 40, len(DATA)])
def test_one_that_a_crash_left_half_erased_is_erased_and_no_damage(
    directory: Path, caplog: pytest.LogCaptureFixture, num_zeros: int
) -> None:
    path = directory / "talk.forget"
    (directory / "talk.conv").rename(path)
    path.write_bytes(bytes(num_zeros) + DATA[num_zeros:])
    fd = os.open(path, os.O_RDONLY)
    assert opened(directory) == Opened({}, {}, frozenset(), 0, 0)
    assert (os.listdir(directory), caplog.messages) == ([], [])
    assert os.pread(fd, len(DATA), 0) == bytes(len(DATA))
    os.close(fd)
    (directory / "talk.conv").write_bytes(bytes(num_zeros) + DATA[num_zeros:])
    assert opened(directory).num_bad == 1  # nobody asked for that


def test_a_copy_that_cannot_be_made_costs_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "talk.conv").write_bytes(DATA[: len(SHORT) - 1] + b"x" + DATA[len(SHORT) :])
    before = bytes_of(directory)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("daemon.mending.shutil.copyfileobj", full)
    with pytest.raises(StoreFull):
        opened(directory)
    assert bytes_of(directory) == before


def test_what_is_set_aside_is_numbered_and_goes_with_its_name(directory: Path) -> None:
    for number in range(3):
        (directory / "fork.1.conv").write_bytes(bytes([number]) * 100)
        assert opened(directory).num_bad == 1
    (directory / "fork.bad").write_bytes(b"another's")
    (directory / "fork.1.badly").write_bytes(b"no name of ours")
    (directory / "fork.1.bad9").symlink_to(directory / "fork.bad")
    files = ConversationFiles(directory)
    assert files.open().aside == {"fork.1", "fork"}
    held = [os.open(directory / f"fork.1.bad{n}", os.O_RDONLY) for n in ("", "2", "3")]
    assert [os.pread(fd, 2, 0) for fd in held] == [b"\0\0", b"\1\1", b"\2\2"]
    files.create("fork.1", FILES["fork"])
    files.mark("fork.1")
    files.erase("fork.1")
    assert [os.pread(fd, 101, 0) for fd in held] == [bytes(100)] * 3
    for fd in held:
        os.close(fd)
    left = {"talk.conv", "fork.bad", "fork.1.badly", "fork.1.bad9"}
    assert set(os.listdir(directory)) == left
    assert (directory / "fork.bad").read_bytes() == b"another's"


def test_a_newer_one_is_refused_by_its_path(directory: Path) -> None:
    head = b"GCNV" + struct.pack("<HH", 3, 0)
    check = blake3(head).digest()[:16]
    frame = struct.pack("<IHH", 4, 9, 0)
    newer = head + frame + blake3(check + frame + b"next").digest()[:16] + b"next"
    (directory / "new.conv").write_bytes(newer)
    before = bytes_of(directory)
    with pytest.raises(StoreVersion, match=r"new\.conv") as caught:
        opened(directory)
    assert "newer gliad" in (caught.value.hint or "")
    assert bytes_of(directory) == before


def test_one_that_was_being_made_is_removed(directory: Path) -> None:
    (directory / "half.partial").write_bytes(DATA[:100])
    assert list(opened(directory).live) == ["talk"]
    assert not (directory / "half.partial").exists()


def test_what_is_none_is_left_alone(directory: Path) -> None:
    (directory / "README").write_text("hands off")
    (directory / ".hidden.conv").write_text("")
    (directory / "dir.conv").mkdir()
    os.mkfifo(directory / "fifo.conv")
    (directory / "link.conv").symlink_to(directory / "talk.conv")
    (directory / "@nothex00.conv").write_bytes(DATA)
    before = sorted(os.listdir(directory))
    assert list(opened(directory).live) == ["talk"]
    assert sorted(os.listdir(directory)) == before


def test_what_lies_behind_the_known_end_is_written_over(directory: Path) -> None:
    files = ConversationFiles(directory)
    path = directory / "talk.conv"
    path.write_bytes(SHORT)
    kept = files.open().live["talk"]
    path.write_bytes(SHORT + b"left by a write that failed " * 100)
    turn = TALK[3]
    assert isinstance(turn, Turn)
    head = kept.head
    replay = files.read("talk", kept)
    replay.apply(turn)
    grown = files.append("talk", kept, replay.head, turn)
    assert path.read_bytes() == DATA
    assert grown == opened(directory).live["talk"]
    assert head.num_turns + 1 == grown.head.num_turns


def test_half_a_turn_that_cannot_be_cut_off_is_before_the_next(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk fails a while: writing half a turn, then cutting, then cutting again."""
    files = ConversationFiles(directory)
    path = directory / "talk.conv"
    path.write_bytes(SHORT)
    kept = files.open().live["talk"]
    turn = TALK[3]
    assert isinstance(turn, Turn)
    replay = files.read("talk", kept)
    replay.apply(turn)
    written: list[int] = []

    def pwrite(fd: int, data: memoryview, at: int) -> int:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(os.lseek(fd, at, os.SEEK_SET))
        return os.write(fd, data[:100])

    def ftruncate(*_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("daemon.conversation_files.os.ftruncate", ftruncate)
        with broken.context() as full:
            full.setattr("daemon.conversation_files.os.pwrite", pwrite)
            with pytest.raises(StoreFull), caplog.at_level(logging.ERROR):
                files.append("talk", kept, replay.head, turn)
        assert len(path.read_bytes()) == len(SHORT) + 100
        assert "talk.conv: half a turn" in caplog.text
        with pytest.raises(StoreBroken, match="Input/output"):
            files.append("talk", kept, replay.head, turn)
        assert len(path.read_bytes()) == len(SHORT) + 100
        assert files.read("talk", kept).head == kept.head
    files.append("talk", kept, replay.head, turn)
    assert path.read_bytes() == DATA


def test_who_reads_an_older_state_gets_that(directory: Path) -> None:
    files = ConversationFiles(directory)
    (directory / "talk.conv").write_bytes(SHORT)
    kept = files.open().live["talk"]
    (directory / "talk.conv").write_bytes(DATA)
    assert files.read("talk", kept).head == kept.head


def test_a_file_that_became_shorter_is_not_written_to(directory: Path) -> None:
    files = ConversationFiles(directory)
    kept = files.open().live["talk"]
    (directory / "talk.conv").write_bytes(DATA[:-1])
    turn = TALK[3]
    assert isinstance(turn, Turn)
    with pytest.raises(StoreBroken, match="shorter"):
        files.append("talk", kept, kept.head, turn)
    with pytest.raises(StoreBroken, match="damaged"):
        files.read("talk", kept)


def test_a_symlink_is_not_followed(directory: Path) -> None:
    files = ConversationFiles(directory)
    kept = files.open().live["talk"]
    elsewhere = directory.parent / "elsewhere"
    os.rename(directory / "talk.conv", elsewhere)
    (directory / "talk.conv").symlink_to(elsewhere)
    turn = TALK[3]
    assert isinstance(turn, Turn)
    with pytest.raises(StoreBroken):
        files.append("talk", kept, kept.head, turn)
    with pytest.raises(StoreBroken):
        files.read("talk", kept)
    assert elsewhere.read_bytes() == DATA


def test_a_directory_that_cannot_be_synced_has_no_new_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ConversationFiles(directory)
    before = bytes_of(directory)
    synced: list[int] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(fd)
        if len(synced) == 2:
            raise OSError(5, "Input/output error")
        real(fd)

    monkeypatch.setattr("daemon.conversation_files.os.fsync", fsync)
    with pytest.raises(StoreBroken, match="Input/output"):
        files.create("fork.1", FILES["fork"])
    assert bytes_of(directory) == before


def test_the_directory_is_made_again_for_a_new_one(directory: Path) -> None:
    files = ConversationFiles(directory)
    kept = files.open().live["talk"]
    (directory / "talk.conv").unlink()
    directory.rmdir()
    with pytest.raises(UnknownConversation):
        files.read("talk", kept)
    files.create("fork.1", FILES["fork"])
    assert list(opened(directory).live) == ["fork.1"]


def test_erasing_what_is_gone_is_no_matter(directory: Path) -> None:
    files = ConversationFiles(directory)
    files.mark("talk")
    (directory / "talk.forget").unlink()
    files.erase("talk")
    with pytest.raises(UnknownConversation):
        files.mark("talk")


def test_only_checked_names_become_paths(directory: Path) -> None:
    files = ConversationFiles(directory)
    with pytest.raises(ValueError, match="checked name"):
        files.erase("../talk")
