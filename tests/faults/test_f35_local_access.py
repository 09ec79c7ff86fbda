"""F35: other users, wide modes, symlinks and a thousand silent clients."""

from __future__ import annotations

import os
import resource
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from glia.client import Client
from glia.errors import BadRequest, GliaError, NotRunning
from glia.local import messages as m
from glia.local.frames import encode_frame
from tests.network_sockets import network_sockets
from tests.node_parts import RunningNode, until
from tests.pace import PATIENCE_S, Stopwatch

NOBODY = 65534
HALF_OPEN = 1000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "node") as running:
        yield running


def refused(data_dir: Path) -> str:
    node = RunningNode(data_dir)
    message = node.wait()
    assert node.process.returncode == 2
    return message


@pytest.mark.fault("F35")
def test_what_a_node_makes_is_its_owners_alone(node: RunningNode) -> None:
    for path in [node.data_dir, *node.data_dir.rglob("*")]:
        status = path.lstat()
        assert status.st_uid == os.geteuid()
        assert not status.st_mode & 0o077, path
    assert stat.S_IMODE((node.data_dir / "gliad.sock").stat().st_mode) == 0o600
    assert network_sockets(node.process.pid) == []


@pytest.mark.fault("F35")
def test_a_key_that_others_can_read_is_refused_where_it_is_used(tmp_path: Path) -> None:
    """That of what is a node's own in its groups: who is in none needs none."""
    data_dir = tmp_path / "node"
    with RunningNode(data_dir) as running, Client.connect(running.data_dir) as client:
        assert not (data_dir / "own.key").exists()
        client.create_group("team")
    key = data_dir / "own.key"
    key.write_bytes(bytes(32))
    key.chmod(0o644)
    message = refused(data_dir)
    assert "open to other users" in message
    assert f"chmod 600 {key}" in message


@pytest.mark.fault("F35")
@pytest.mark.parametrize("mode", [0o750, 0o705, 0o711, 0o770, 0o777, 0o702])
def test_a_data_dir_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    data_dir = tmp_path / "node"
    data_dir.mkdir()
    data_dir.chmod(mode)
    message = refused(data_dir)
    assert "open to other users" in message
    assert f"chmod 700 {data_dir}" in message
    assert list(data_dir.iterdir()) == []


@pytest.mark.fault("F35")
def test_symlinks_are_refused(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(real)
    message = refused(link)
    assert "is a symlink" in message
    assert f"--data-dir {real}" in message
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("gliad.sock", "gliad.lock", "gliad.log", "format"):
        data_dir = tmp_path / f"with-{name}"
        data_dir.mkdir(mode=0o700)
        (data_dir / name).symlink_to(victim)
        node = RunningNode(data_dir)
        message = node.wait()
        assert node.process.returncode in (2, 6)
        assert name in message
        assert "Traceback" not in message
        assert victim.read_text() == "precious"


@pytest.mark.fault("F35")
@pytest.mark.parametrize("name", ["store", "models", "conversations", "published", "heard"])
def test_directories_that_are_symlinks_are_refused(tmp_path: Path, name: str) -> None:
    data_dir, real = tmp_path / "node", tmp_path / "real"
    data_dir.mkdir(mode=0o700)
    real.mkdir(mode=0o755)
    (data_dir / name).symlink_to(real)
    message = refused(data_dir)
    assert f"{data_dir / name} is a symlink" in message
    assert f"rm {data_dir / name} && mv {real} {data_dir / name}" in message
    assert list(real.iterdir()) == []


@pytest.mark.fault("F35")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_is_refused_even_past_the_file_modes(node: RunningNode) -> None:
    """As nobody, with the modes opened up on purpose: the kernel's credentials still tell."""
    for path in (node.data_dir, *node.data_dir.parents):
        if path.stat().st_uid == 0 and path != Path("/") and path != Path("/tmp"):  # noqa: S108
            path.chmod(0o755)
    (node.data_dir / "gliad.sock").chmod(0o666)
    heard, _, error = _as_nobody(node.data_dir).partition("; ")
    assert heard in ("told 0 bytes", "cannot connect")
    assert error == f"the gliad at {node.data_dir} is of uid 0"
    assert node.client().status().counters["refused_uid"] == 2
    node.data_dir.chmod(0o700)
    heard, _, error = _as_nobody(node.data_dir).partition("; ")
    assert heard == "cannot connect"
    assert "not yours to open" in error
    assert node.client().status().counters["refused_uid"] == 2


def _as_nobody(data_dir: Path) -> str:
    """What a client of another uid meets, tried in a child."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            result = _try(data_dir)
        except BaseException as error:
            result = repr(error)
        os.write(write_end, result.encode())
        os._exit(0)
    os.close(write_end)
    with open(read_end) as pipe:
        result = pipe.read()
    os.waitpid(pid, 0)
    return result


def _try(data_dir: Path) -> str:
    """With a bare socket first: it is gliad that refuses, not only our client."""
    path = data_dir / "gliad.sock"
    said = "cannot connect"
    with socket.socket(socket.AF_UNIX) as sock, suppress(PermissionError):
        sock.connect(os.fspath(path))
        sock.settimeout(5.0)
        with suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(encode_frame(m.Hello(1, m.PROTOCOL_VERSION, "client", "")))
            said = f"told {len(sock.recv(100))} bytes"
    try:
        Client.connect(path, timeout_s=0.0)
    except NotRunning as error:
        return f"{said}; {error.message}"
    return "connected"


@pytest.mark.fault("F35")
def test_a_thousand_silent_clients_keep_nobody_out(node: RunningNode) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    silent: list[socket.socket] = []
    try:
        waits_ms = []
        for count in range(HALF_OPEN):
            sock = socket.socket(socket.AF_UNIX)
            silent.append(sock)
            sock.connect(os.fspath(node.data_dir / "gliad.sock"))
            if count % 50 == 49:
                watch = Stopwatch(node.process.pid)
                with Client.connect(node.data_dir) as client:
                    counters = client.status().counters
                waits_ms.append(watch.took_s() * 1000)
        assert counters["half_open_dropped"] >= HALF_OPEN - 100
        assert sorted(waits_ms)[len(waits_ms) // 2] <= 100, waits_ms
        assert len(os.listdir(f"/proc/{node.process.pid}/fd")) < 200
    finally:
        for sock in silent:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_client_that_says_nothing_is_waited_for_so_long(tmp_path: Path) -> None:
    with (
        RunningNode(tmp_path / "node", {"api": {"handshake_timeout_s": 0.2}}) as node,
        socket.socket(socket.AF_UNIX) as silent,
    ):
        silent.connect(os.fspath(node.data_dir / "gliad.sock"))
        silent.settimeout(5.0)
        assert silent.recv(1) == b""


def test_no_more_clients_than_may(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node", {"api": {"max_clients": 3}}) as node:
        until(lambda: node.client() is not None)
        clients = [node.client() for _ in range(2)]
        with pytest.raises(GliaError, match="3 clients are connected") as full:
            node.client()
        assert full.value.code == "quota_exceeded"
        clients[0].close()

        def lets_in() -> bool:
            try:
                node.client()
            except GliaError:
                return False
            return True

        until(lets_in)


@pytest.mark.fault("F6")
def test_a_node_without_descriptors_left_goes_on_when_there_are_again(node: RunningNode) -> None:
    """The limit is lowered from outside to what is in use: accepting fails until it is raised."""
    pid = node.process.pid
    client = node.client()
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), before[1]))
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(os.fspath(node.data_dir / "gliad.sock"))
        until(lambda: client.status().counters.get("accept_failed", 0) > 0)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        watch = Stopwatch(pid)
        node.client(timeout_s=PATIENCE_S).status()
        assert watch.took_s() <= 5.0


def test_a_socket_path_that_is_too_long(tmp_path: Path) -> None:
    data_dir = tmp_path / ("d" * 100)
    data_dir.mkdir(mode=0o700)
    assert "bytes long, 107 is the most" in refused(data_dir)
    with pytest.raises(BadRequest, match="107 is the most") as error:
        Client.connect(data_dir)
    assert "--data-dir" in str(error.value.hint)


def test_a_data_dir_of_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    data_dir = tmp_path / "node"
    data_dir.mkdir(mode=0o700)
    (data_dir / "format").write_text("2\n")
    node = RunningNode(data_dir)
    message = node.wait()
    assert node.process.returncode == 6
    assert "store_version" in message
    assert "format version 2, this gliad knows 1" in message
    assert not (data_dir / "store").exists()
    assert not (data_dir / "gliad.lock").exists()


def test_more_l1_than_memory_is_refused(tmp_path: Path) -> None:
    node = RunningNode(tmp_path / "node", {"l1": {"size_bytes": 2**46}})
    message = node.wait()
    assert node.process.returncode == 2
    assert "l1.size: an arena of" in message
    assert "lower l1.size in glia.toml" in message


def test_nothing_there_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(NotRunning) as error:
        Client.connect(tmp_path)
    assert error.value.hint == f"gliad start --data-dir {tmp_path}"
