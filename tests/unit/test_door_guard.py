"""Who may ask, by a request's head; and the key's file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daemon.door.guard import Guard
from daemon.http_key import http_key
from glia.errors import BadRequest

KEY = "k" * 43
GOOD = ((b"host", b"127.0.0.1:8080"), (b"authorization", f"Bearer {KEY}".encode()))


def code_of(*headers: tuple[bytes, bytes], path: str = "/v1/models", key: str = KEY) -> str | None:
    refusal = Guard(key).refuse(path, headers)
    return refusal.code if refusal else None


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:8080"]
)
def test_loopback_names_are_served(host: str) -> None:
    assert code_of((b"host", host.encode()), GOOD[1]) is None


@pytest.mark.fault("F35")
@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("10.0.0.1", "[::]", "[fe80::1]", "", "[::1", "[x]", "127.1", "2130706433"),
        *("localhost@evil.example", "evil.example#localhost", "\xff"),
    ],
)
def test_a_name_that_was_made_to_point_here_is_not(host: str) -> None:
    assert code_of((b"host", host.encode("latin-1")), GOOD[1]) == "forbidden_host"


def test_no_host_is_no_loopback_name() -> None:
    assert code_of(GOOD[1]) == "forbidden_host"


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:1"])
def test_pages_of_this_machine_are_served(origin: str) -> None:
    assert code_of(*GOOD, (b"origin", origin.encode())) is None


@pytest.mark.fault("F35")
@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.example", "https://localhost.evil.example", "null", "", "file://"),
        *("http://localhost@evil.example", "app://x", "http://[::1", "\xe9"),
    ],
)
@pytest.mark.parametrize("key", [KEY, ""])
def test_pages_of_other_sites_are_not(origin: str, key: str) -> None:
    assert code_of(*GOOD, (b"origin", origin.encode("latin-1")), key=key) == "forbidden_origin"


@pytest.mark.parametrize(
    "given",
    [
        *(b"", b"Bearer", b"Bearer ", KEY.encode(), b"Basic " + KEY.encode()),
        *(b"Bearer " + KEY[:-1].encode(), b"Bearer " + KEY.encode() + b"k", b"Bearer \xff\x00"),
    ],
)
def test_the_key_is_asked_for(given: bytes) -> None:
    assert code_of(GOOD[0], (b"authorization", given)) == "invalid_api_key"
    assert code_of(GOOD[0], (b"authorization", given), path="/metrics") == "invalid_api_key"
    assert code_of(GOOD[0], (b"authorization", given), path="/health") is None
    assert code_of(GOOD[0], (b"authorization", given), key="") is None


def test_how_the_key_may_be_written() -> None:
    assert code_of(GOOD[0]) == "invalid_api_key"
    assert code_of(GOOD[0], (b"authorization", f"bearer  {KEY} ".encode())) is None


# -- its file --------------------------------------------------------------------------------


def test_a_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "http.key"
    before = os.umask(0)
    try:
        key = http_key(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(key) == 43
    assert http_key(path) == key
    assert http_key(tmp_path / "other.key") != key
    assert sorted(p.name for p in tmp_path.iterdir()) == ["http.key", "other.key"]


@pytest.mark.fault("F35")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o602])
def test_a_key_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "http.key"
    http_key(path)
    path.chmod(mode)
    with pytest.raises(BadRequest, match="open to other users") as caught:
        http_key(path)
    assert f"chmod 600 {path}" in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["", "short", "a" * 31, "a" * 300, "sp ace" * 10, "é" * 40])
def test_what_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "http.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(BadRequest, match="not a key"):
        http_key(path)


@pytest.mark.fault("F35")
def test_a_symlink_and_a_directory_are_no_key(tmp_path: Path) -> None:
    path = tmp_path / "http.key"
    http_key(tmp_path / "real.key")
    path.symlink_to(tmp_path / "real.key")
    with pytest.raises(BadRequest):
        http_key(path)
    path.unlink()
    path.mkdir(0o700)
    with pytest.raises(BadRequest):
        http_key(path)


def test_an_own_key_may_be_written_there(tmp_path: Path) -> None:
    path = tmp_path / "http.key"
    path.write_text("my-own_key-" * 4 + "\n")
    path.chmod(0o600)
    assert http_key(path) == "my-own_key-" * 4


def test_a_pipe_is_no_key_and_holds_up_nobody(tmp_path: Path) -> None:
    path = tmp_path / "http.key"
    os.mkfifo(path, 0o600)
    with pytest.raises(BadRequest, match="not a file of yours"):
        http_key(path)
