"""The reserve on a disk that others fill meanwhile: what the file system refuses is scripted."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from glia.store.reserve import Reserve

MIB = 2**20
WANTED = 8 * MIB
CAP = 16 * WANTED

Allocate = Callable[[int, int, int], None]
Takes = Callable[[Callable[[int], int]], None]


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> Takes:
    """Has the file system say what becomes of what is asked of it: 0, or an errno."""
    real: Allocate = os.posix_fallocate

    def script(answer: Callable[[int], int]) -> None:
        def allocate(fd: int, at: int, size_bytes: int) -> None:
            number = answer(size_bytes)
            real(fd, at, size_bytes // 2 if number else size_bytes)  # it may have begun
            if number:
                raise OSError(number, os.strerror(number))

        monkeypatch.setattr("glia.store.reserve.os.posix_fallocate", allocate)

    return script


def size_of(path: Path) -> tuple[int, int]:
    """What a file is long, and what it takes."""
    status = path.stat()
    return status.st_size, status.st_blocks * 512


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_it_is_taken_though_others_are_quicker_at_first(
    tmp_path: Path, takes: Takes, number: int
) -> None:
    asked: list[int] = []

    def first_is_refused(size_bytes: int) -> int:
        asked.append(size_bytes)
        return number if len(asked) == 1 else 0

    takes(first_is_refused)
    reserve = Reserve(tmp_path / "reserve", WANTED, CAP)
    assert reserve.take()
    assert asked == [WANTED, WANTED - MIB]  # an eighth is left to them
    assert reserve.size_bytes == WANTED - MIB
    assert size_of(tmp_path / "reserve") == (WANTED - MIB, WANTED - MIB)
    assert reserve.take()  # the rest, now that nobody wants it
    assert size_of(tmp_path / "reserve") == (WANTED, WANTED)


def test_what_it_has_it_keeps_where_there_is_no_more(tmp_path: Path, takes: Takes) -> None:
    """A quota, which is not told with the room of a disk."""
    takes(lambda size_bytes: errno.EDQUOT if size_bytes > 5 * MIB else 0)
    reserve = Reserve(tmp_path / "reserve", WANTED, CAP)
    for _ in range(2):
        assert reserve.take()
        assert size_of(tmp_path / "reserve") == (5 * MIB, 5 * MIB)
    takes(lambda _: errno.ENOSPC)
    assert reserve.take()
    assert reserve.size_bytes == 5 * MIB
    assert size_of(tmp_path / "reserve") == (5 * MIB, 5 * MIB)


def test_where_there_is_none_it_is_not_there(tmp_path: Path, takes: Takes) -> None:
    asked: list[int] = []
    takes(lambda size_bytes: asked.append(size_bytes) or errno.ENOSPC)
    reserve = Reserve(tmp_path / "reserve", WANTED, CAP)
    assert not reserve.take()
    assert asked == [WANTED - part * MIB for part in range(4)]
    assert (reserve.size_bytes, size_of(tmp_path / "reserve")) == (0, (0, 0))
    assert not reserve.give_up()


def test_another_error_is_raised_and_leaves_no_part(tmp_path: Path, takes: Takes) -> None:
    takes(lambda _: errno.EIO)
    reserve = Reserve(tmp_path / "reserve", WANTED, CAP)
    with pytest.raises(OSError, match="Input/output"):
        reserve.take()
    assert (reserve.size_bytes, size_of(tmp_path / "reserve")) == (0, (0, 0))


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious" * (WANTED // 4))
    (tmp_path / "reserve").symlink_to(victim)
    reserve = Reserve(tmp_path / "reserve", WANTED, CAP)
    assert victim.stat().st_size == 2 * WANTED
    assert reserve.take()
    assert not (tmp_path / "reserve").is_symlink()
    assert size_of(tmp_path / "reserve") == (WANTED, WANTED)


def test_a_larger_one_of_before_is_cut_and_one_that_nobody_wants_goes(tmp_path: Path) -> None:
    assert Reserve(tmp_path / "reserve", WANTED, CAP).take()
    half = Reserve(tmp_path / "reserve", WANTED // 2, CAP)
    assert (half.size_bytes, half.is_there) == (WANTED // 2, True)
    assert size_of(tmp_path / "reserve") == (WANTED // 2, WANTED // 2)
    assert Reserve(tmp_path / "reserve", 0, CAP).size_bytes == 0
    assert list(tmp_path.iterdir()) == []
