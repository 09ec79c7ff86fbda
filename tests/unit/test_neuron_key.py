"""The node's two keys: made once, for their owner only, and refused where others may know them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.neuron_key import neuron_signer, peer_seed
from glia.errors import BadRequest, StoreBroken
from glia.graph.neuron import Signer, is_signed

Read = Callable[[Path], object]
READS = (neuron_signer, peer_seed)


def test_a_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        neuron = neuron_signer(tmp_path / "neuron.key").neuron
        seed = peer_seed(tmp_path / "peer.key")
    finally:
        os.umask(before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["neuron.key", "peer.key"]
    assert {path.stat().st_mode for path in tmp_path.iterdir()} == {0o100600}
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {32}
    assert neuron_signer(tmp_path / "neuron.key").neuron == neuron
    assert peer_seed(tmp_path / "peer.key") == seed
    assert Signer(seed).neuron != neuron


def test_two_nodes_are_two_neurons(tmp_path: Path) -> None:
    one, other = neuron_signer(tmp_path / "a"), neuron_signer(tmp_path / "b")
    assert one.neuron != other.neuron
    assert is_signed(one.neuron, b"x", one.sign(b"x"))
    assert not is_signed(other.neuron, b"x", one.sign(b"x"))


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o777])
def test_a_key_that_others_may_use_is_refused(tmp_path: Path, read: Read, mode: int) -> None:
    path = tmp_path / "key"
    read(path)
    path.chmod(mode)
    with pytest.raises(BadRequest, match="open to other users") as caught:
        read(path)
    assert f"chmod 600 {path}" in (caught.value.hint or "")


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("size", [0, 31, 33, 2000])
def test_another_length_is_no_key(tmp_path: Path, read: Read, size: int) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"\x51" * size)
    path.chmod(0o600)
    with pytest.raises(BadRequest, match="not a key") as caught:
        read(path)
    assert "Q" * 4 not in str(caught.value)  # nothing of what is in it
    assert path.stat().st_size == size


@pytest.mark.parametrize("read", READS)
def test_a_symlink_a_pipe_and_a_directory_are_refused(tmp_path: Path, read: Read) -> None:
    read(tmp_path / "real")
    (tmp_path / "symlink").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "directory").mkdir(mode=0o700)
    for name in ("symlink", "dangling", "pipe", "directory"):
        with pytest.raises(BadRequest):
            read(tmp_path / name)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("read", READS)
def test_a_key_of_another_user_is_refused(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(tmp_path / "key")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(BadRequest, match="not a file of yours"):
        read(tmp_path / "key")


@pytest.mark.parametrize("read", READS)
def test_what_a_crash_left_half_made_is_made_anew(tmp_path: Path, read: Read) -> None:
    (tmp_path / "key.partial").write_bytes(b"half")
    read(tmp_path / "key")
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_where_no_file_can_be_made_the_store_is_broken(tmp_path: Path) -> None:
    with pytest.raises(StoreBroken):
        neuron_signer(tmp_path / "no" / "key")


def test_a_signer_shows_nothing_of_its_seed() -> None:
    seed = bytes(range(32))
    signer = Signer(seed)
    assert seed.hex() not in repr(signer) + repr(vars(signer))
    with pytest.raises(BadRequest) as caught:
        Signer(seed[:31])
    assert seed[:31].hex() not in str(caught.value)
