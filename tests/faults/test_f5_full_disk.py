"""F5: a node whose disk is full: answers come, reads go on, writes resume when there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.data_dir import DataDirLock
from daemon.paths import Paths
from glia.client import Client
from glia.errors import AlreadyRunning, StoreFull
from tests.builders import make_chain
from tests.node_parts import MIB, RunningNode, until
from tests.pace import Stopwatch
from tests.tiny_node import SETTINGS, add_manifest, pid_of, prompt, run, save_model

DISK_BYTES = 64 * MIB
RESUMES_S = 5.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB of its own."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    path = tmp_path / "disk"
    path.mkdir()
    mounting = ["/bin/mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    done = subprocess.run(mounting, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["/bin/umount", "--lazy", str(path)], check=True, timeout=30)


class Filler:
    """A file that takes all room there is, and gives it back."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fill(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            for size in (MIB, 4096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    def give_back(self) -> None:
        self._path.unlink()


@pytest.mark.spec(30)
@pytest.mark.fault("F5")
def test_a_full_disk_costs_the_cache_and_not_the_answer(disk: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "l2": {"size_bytes": 1024 * MIB, "segment_bytes": 4 * MIB}}
    filler = Filler(disk / "filler")
    with RunningNode(disk / "node", settings) as node:
        add_manifest(node, save_model(tmp_path / "tiny"))
        client, author = node.client(), node.author()
        pid = node.process.pid
        known = prompt(300, 1)
        first = run(client, known)
        assert (first.warning, first.tip is None) == (None, False)

        filler.fill()
        chain = make_chain(8)
        author.seal(chain)
        with pytest.raises(StoreFull) as caught:
            author.client.flush(chain.window_ids)
        assert caught.value.hint
        refused = run(client, prompt(300, 2))
        assert len(refused.tokens) == 8
        assert refused.warning

        client.evict("l0")  # reads go on, from L1 and from the disk
        client.evict("l1")
        again = run(client, known)
        assert again.tokens == first.tokens
        assert again.usage.cached.l2 > 200
        assert run(client, known).tokens == first.tokens

        filler.give_back()
        watch = Stopwatch(node.process.pid, pid_of(client))
        until(lambda: run(client, prompt(300, 3)).warning is None)
        author.client.flush(chain.window_ids)  # what was refused is kept now
        assert watch.took_s() <= RESUMES_S

        assert run(client, prompt(300, 2)).warning is None
        _assert_sound(client)
        assert (node.process.pid, node.process.poll()) == (pid, None)
        answers = {seed: run(client, prompt(300, seed)).tokens for seed in (1, 2, 3)}
        node.restart()
        after = node.client()
        for seed, answer in answers.items():  # and durable
            found = run(after, prompt(300, seed))
            assert (found.tokens, found.usage.computed) == (answer, 300 - 288)
        assert node.author().client.match(chain.tokens) == chain.window_ids
        _assert_sound(after)


@pytest.mark.spec(30)
@pytest.mark.fault("F5")
def test_a_node_starts_on_a_full_disk_reads_and_forgets(disk: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "l2": {"size_bytes": 1024 * MIB, "segment_bytes": 4 * MIB}}
    filler = Filler(disk / "filler")
    with RunningNode(disk / "node", settings) as node:
        add_manifest(node, save_model(tmp_path / "tiny"))
        client = node.client()
        known, other = (run(client, prompt(300, seed)) for seed in (1, 2))
        filler.fill()
        for end in (node.stop, node.kill, node.stop):
            end()
            filler.fill()
            node.restart()
            client = node.client()
            filler.fill()
            again = run(client, prompt(300, 1))
            assert again.tokens == known.tokens
            assert again.usage.cached.l2 > 200
            assert run(client, prompt(300, 9)).warning  # answered, not recorded
            said = client.conversation(known.conversation)
            assert list(said.tokens[300:]) == known.tokens
            assert int((node.data_dir / "gliad.lock").read_text()) == node.process.pid
        filler.fill()
        refused = run(client, prompt(300, 8))
        assert "gliad gc --unreferenced" in (refused.warning or "")
        assert client.gc(unreferenced=True).num_windows >= 300 // 16
        client.evict("l0")
        assert run(client, prompt(300, 8)).usage.computed == 300  # nothing of it was left
        gone = client.forget(other.conversation)
        assert gone.num_windows >= 300 // 16
        names = {said.name for said in client.conversations()}
        assert known.conversation in names
        assert other.conversation not in names

        filler.give_back()
        watch = Stopwatch(node.process.pid, pid_of(client))
        until(lambda: run(client, prompt(300, 3)).warning is None)
        assert watch.took_s() <= RESUMES_S
        _assert_sound(client)


def test_a_lock_without_room_for_a_pid_holds(disk: Path) -> None:
    (disk / "node").mkdir(mode=0o700)
    Filler(disk / "filler").fill()
    paths = Paths(disk / "node")
    lock = DataDirLock(paths)
    assert (lock.predecessor, paths.lock.read_text()) == ("", "")
    with pytest.raises(AlreadyRunning):
        DataDirLock(paths)
    (disk / "filler").unlink()
    lock.name_holder()
    assert int(paths.lock.read_text()) == os.getpid()
    lock.release()
    paths.lock.touch(mode=0o600)
    lock = DataDirLock(paths)  # of one that could not write its pid, and did not end by itself
    assert lock.predecessor == "unknown"
    lock.release()


def _assert_sound(client: Client) -> None:
    report = client.check()
    assert (report.bad, report.bad_windows, report.l1_bad) == (0, 0, 0)
    assert not client.status().counters.get("crashed")
