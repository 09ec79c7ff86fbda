"""Restoring is all or nothing, wherever it breaks off; and a Body lets go what it is told of."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from daemon.checkpoint_config import CheckpointConfig
from daemon.checkpointing import Checkpointing
from daemon.claim_files import ClaimFiles, claim_path
from daemon.config import load_config
from daemon.conversations import Conversations
from daemon.neuron_key import neuron_signer
from daemon.paths import Paths
from daemon.restored_files import finish_restoring
from daemon.restoring import Restoring
from daemon.soul_key import keep_secret
from daemon.soul_state import SoulState
from daemon.turns import open_turn
from glia.errors import (
    BadCheckpoint,
    BadRequest,
    ConfigError,
    ConversationBusy,
    ConversationMoved,
    GliaError,
    QuotaExceeded,
    StoreBroken,
)
from glia.graph.claim import parse_claim
from glia.graph.soul import Soul
from tests.conversation_parts import SAID, bytes_of, call_of, log_of, opened, run, talk, turn_of

SECRET = b"\5" * 32


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.claim_files._PATIENCE_S", 60.0)  # however busy this machine is


@dataclass
class Body:
    """All of a node that a Soul's moves concern."""

    paths: Paths
    conversations: Conversations
    state: SoulState
    checkpointing: Checkpointing
    restoring: Restoring

    @property
    def own(self) -> str:
        return neuron_signer(self.paths.neuron_key).neuron.hex()

    @property
    def log(self) -> dict[str, tuple[int, ...]]:
        return {name: log_of(self.conversations, name) for name in self.conversations.names()}

    def checkpoint(self, path: Path, *names: str) -> int:
        return run(self.checkpointing.make, names, path).sequence

    def restore(self, path: Path, *names: str, **how: Any) -> dict[str, str]:
        restored = run(self.restoring.restore, path, None, names, **how)
        return {each.name: each.what for each in restored.planned}

    def say(self, name: str, *tokens: int) -> None:
        log = self.log.get(name, ())
        asked = SAID("user", "x", len(log), len(log) + len(tokens), "public")
        run(talk, self.conversations, [*log, *tokens], [9, 9], turn_of(name, len(log), asked))


def body(directory: Path, settings: CheckpointConfig | None = None, now_s: float = 2e9) -> Body:
    """A Body as it starts; with a Soul of its own where it has none."""
    paths = Paths(directory)
    directory.mkdir(mode=0o700, exist_ok=True)
    keep_secret(paths.soul_key, SECRET)
    finish_restoring(paths)
    state = SoulState.read(paths.soul_state, lambda: neuron_signer(paths.neuron_key).neuron)
    conversations = opened(paths.conversations)
    conversations.check_here, conversations.moved_to = state.check_here, state.moved_to
    checkpointing = Checkpointing(
        conversations, state, paths, settings or CheckpointConfig(), lambda: now_s
    )
    restoring = Restoring(conversations, state, paths, lambda: now_s)
    return Body(paths, conversations, state, checkpointing, restoring)


def epoch_of(at: Body) -> int:
    return at.state.of(Soul(SECRET).name).epoch


def looks(at: Body) -> None:
    """It looks for claims, as it does all the time."""
    trio.run(ClaimFiles(at.state).look)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A checkpoint of three conversations."""
    old = body(tmp_path / "old")
    for number, name in enumerate(("a", "b", "c")):
        old.say(name, *range(1, 20 + number))
    old.checkpoint(tmp_path / "soul.glia")
    return tmp_path / "soul.glia"


LOGS = {name: (*range(1, 20 + n), 9, 9) for n, name in enumerate(("a", "b", "c"))}


class Broken(BaseException):
    """A crash: nothing behind it is done."""


@pytest.mark.spec(59)
def test_a_crash_at_any_step_leaves_all_or_nothing(tmp_path: Path, made: Path) -> None:
    left, step = [], 0
    while True:
        directory = tmp_path / f"new{step}"
        new = body(directory)
        new.say("mine", 1, 2)
        with pytest.MonkeyPatch.context() as patch:
            _crash_at(step, patch)
            try:
                new.restore(made, anyway=True)
            except (Broken, BaseExceptionGroup):
                pass
            else:
                break
        logs = body(directory).log
        assert logs.pop("mine") == (1, 2, 9, 9)
        assert logs in ({}, LOGS)
        left.append(len(logs))
        again = body(directory)
        again.restore(made, anyway=True)
        assert again.log == {"mine": (1, 2, 9, 9), **LOGS}
        assert not [path for path in directory.iterdir() if "restoring" in path.name]
        step += 1
    assert left == sorted(left)  # up to one step nothing, from there on all
    assert (left[0], left[-1], len(left) > 20) == (0, 3, True)


def _crash_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Have the step-th change of the file system never happen, nor any behind it."""
    count = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count > step:
                raise Broken
            return function(*args, **named)

        return call

    for name in ("replace", "rename", "fsync", "mkdir", "rmdir", "link"):
        patch.setattr(os, name, counted(getattr(os, name)))


def test_a_disk_that_refuses_leaves_nothing(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = body(tmp_path / "new")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("daemon.restored_files.write_private", full)
    with pytest.raises(StoreBroken, match="nothing is restored"):
        new.restore(made)
    monkeypatch.undo()
    assert (new.log, body(tmp_path / "new").log) == ({}, {})
    assert new.restore(made) == {"a": "new", "b": "new", "c": "new"}


def test_one_that_is_busy_or_another_keeps_all_back(tmp_path: Path, made: Path) -> None:
    new = body(tmp_path / "new")
    new.say("c", 7)
    before = bytes_of(new.paths.conversations)

    async def while_answering() -> None:
        async with open_turn(new.conversations, call_of([1], turn_of("b", 0))):
            await new.restoring.restore(made, None, ())

    with pytest.raises(ConversationBusy, match="b is being answered in"):
        trio.run(while_answering)
    with pytest.raises(BadRequest, match="c is here, and says something else"):
        new.restore(made)
    assert bytes_of(new.paths.conversations) == before
    assert new.restore(made, "a", "b") == {"a": "new", "b": "new"}


def test_what_went_on_there_goes_on_here_and_what_went_on_here_stays(tmp_path: Path) -> None:
    old, new = body(tmp_path / "old"), body(tmp_path / "new")
    file = tmp_path / "soul.glia"
    for name in ("a", "b"):
        old.say(name, 1, 2, 3)
    old.checkpoint(file)
    new.restore(file)
    new.say("a", 4)
    new.checkpoint(tmp_path / "back.glia")
    new.say("b", 5)
    assert old.restore(tmp_path / "back.glia") == {"a": "goes_on", "b": "same"}
    assert old.log["a"] == (1, 2, 3, 9, 9, 4, 9, 9)
    assert new.restore(tmp_path / "back.glia", anyway=True) == {"a": "same", "b": "newer"}
    assert body(tmp_path / "new").log == new.log
    old.say("a", 8)
    assert bytes_of(old.paths.conversations) == bytes_of(body(tmp_path / "old").paths.conversations)


def test_claims_are_heeded_by_who_should(tmp_path: Path) -> None:
    old, new, third = (body(tmp_path / name) for name in ("old", "new", "third"))
    file = tmp_path / "soul.glia"
    old.say("a", 1, 2)
    old.checkpoint(file)
    old.say("b", 1)  # made since: no part of what moved
    new.restore(file)

    for each in (old, new, third):
        looks(each)
    with pytest.raises(ConversationMoved, match="a moved to another Body"):
        old.say("a", 3)
    old.say("b", 3)
    new.say("a", 3)
    with pytest.raises(BadRequest, match="has restored it since"):
        third.restore(file)
    third.restore(file, anyway=True)  # the third has it now: a second move
    looks(new)
    with pytest.raises(ConversationMoved):
        new.say("a", 4)
    again = body(tmp_path / "old")  # it remembers
    with pytest.raises(ConversationMoved):
        again.say("a", 3)
    with pytest.raises(ConversationMoved, match="restored what is at"):
        old.checkpoint(file)
    assert old.checkpoint(tmp_path / "mine") == 2


def test_of_two_that_restore_at_once_one_lets_go(tmp_path: Path, made: Path) -> None:
    one, other = body(tmp_path / "one"), body(tmp_path / "other", now_s=2e9 + 1)
    one.restore(made)
    first = claim_path(made).read_bytes()
    claim_path(made).unlink()  # the other did not see it yet
    other.restore(made)
    last = claim_path(made).read_bytes()
    assert [epoch_of(each) for each in (one, other)] == [1, 1]
    for said in (last, first, last, first):  # whoever hears what, in which order, how often
        for each in (one, other):
            run(each.state.heed, parse_claim(said))
    other.say("a", 5)
    with pytest.raises(ConversationMoved):
        one.say("a", 5)


def test_what_moved_stays_moved_when_another_souls_checkpoint_is_restored(tmp_path: Path) -> None:
    old, new = body(tmp_path / "old"), body(tmp_path / "new")
    old.say("a", 1, 2)
    old.checkpoint(tmp_path / "soul.glia")
    new.restore(tmp_path / "soul.glia")
    looks(old)
    theirs = body(tmp_path / "theirs")
    theirs.paths.soul_key.write_bytes(b"\6" * 32)
    theirs.say("b", 1)
    theirs.checkpoint(tmp_path / "other.glia")
    run(old.restoring.restore, tmp_path / "other.glia", b"\6" * 32, ())
    old.say("b", 2)
    for each in (old, body(tmp_path / "old")):
        with pytest.raises(ConversationMoved, match="a moved to another Body"):
            each.say("a", 3)
        assert each.conversations.value("a").moved_to == new.own
        assert each.conversations.value("b").moved_to == ""


def test_a_claim_is_seen_by_the_turn_that_comes_next(tmp_path: Path) -> None:
    old, new = body(tmp_path / "old"), body(tmp_path / "new")
    old.say("a", 1, 2)
    old.checkpoint(tmp_path / "soul.glia")
    old.conversations.look = ClaimFiles(old.state).look
    old.say("a", 3)
    new.restore(tmp_path / "soul.glia")
    with pytest.raises(ConversationMoved):
        old.say("a", 4)


def test_its_own_claim_moves_nothing_though_its_state_was_lost(tmp_path: Path, made: Path) -> None:
    one = body(tmp_path / "one")
    one.restore(made)
    one.paths.soul_state.unlink()
    again = body(tmp_path / "one")
    again.checkpoint(tmp_path / "mine")
    run(again.state.heed, parse_claim(claim_path(made).read_bytes()))
    again.say("a", 5)


def test_a_claim_of_another_soul_or_none_says_nothing(tmp_path: Path) -> None:
    old = body(tmp_path / "old")
    file = tmp_path / "soul.glia"
    old.say("a", 1, 2)
    old.checkpoint(file)
    claim_path(file).write_bytes(b"noise" * 100)
    assert old.checkpoint(file) == 2
    new = body(tmp_path / "new")
    new.paths.soul_key.write_bytes(b"\6" * 32)
    with pytest.raises(BadCheckpoint, match="another Soul"):
        new.restore(file)
    assert new.log == {}
    old.say("a", 3)


def test_a_lease_keeps_others_back_until_it_is_over(tmp_path: Path) -> None:
    settings = CheckpointConfig(1.0, str(tmp_path / "soul.glia"), 0, 2.0)
    old = body(tmp_path / "old", settings)
    old.say("a", 1, 2)
    trio.run(old.checkpointing._make_by_itself, tmp_path / "soul.glia")
    early = body(tmp_path / "new", now_s=2e9 + 7200 + 60)
    with pytest.raises(BadRequest, match="may go on for 60 s more"):
        early.restore(tmp_path / "soul.glia")
    late = body(tmp_path / "new", now_s=2e9 + 7200 + 121)
    assert late.restore(tmp_path / "soul.glia") == {"a": "new"}
    assert late.state.known.lease_us == 0


def test_a_lease_is_renewed_by_what_was_written_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    old = body(tmp_path / "old", CheckpointConfig(1.0, str(shared / "soul.glia"), 0, 2.0), 1.0)
    old.say("a", 1, 2)
    trio.run(old.checkpointing._make_by_itself, shared / "soul.glia")
    assert old.state.known.lease_us == 7201 * 10**6
    with pytest.raises(ConversationMoved, match="may go on till 1970-01-01"):
        old.say("a", 3)  # long over by the clock of the day
    later = body(tmp_path / "old", CheckpointConfig(1.0, str(shared / "soul.glia"), 0, 2.0), 4e9)
    shared.rename(tmp_path / "gone")
    with pytest.raises(BadRequest):
        trio.run(later.checkpointing._make_by_itself, shared / "soul.glia")
    with pytest.raises(ConversationMoved):
        later.say("a", 3)
    (tmp_path / "gone").rename(shared)
    trio.run(later.checkpointing._make_by_itself, shared / "soul.glia")
    later.say("a", 3)


def test_older_ones_are_kept_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "soul.glia"
    old = body(tmp_path / "old", CheckpointConfig(1.0, str(path), 2, 0.0))
    for number in range(4):
        old.say("a", number)
        trio.run(old.checkpointing._make_by_itself, path)
        trio.run(old.checkpointing._make_by_itself, path)  # nothing was said since
    names = {entry.name for entry in tmp_path.iterdir() if entry.is_file()}
    assert names == {"soul.glia", "soul.glia.1", "soul.glia.2"}
    new = body(tmp_path / "new")
    assert run(new.restoring.restore, path, None, (), dry=True).checkpoint.sequence == 4
    for number in (1, 2):
        older = tmp_path / f"soul.glia.{number}"
        assert (
            run(new.restoring.restore, older, None, (), dry=True).checkpoint.sequence == 4 - number
        )


def test_older_ones_are_private_and_write_through_no_link(tmp_path: Path) -> None:
    """Others may write where checkpoints are kept."""
    path, theirs = tmp_path / "soul.glia", tmp_path / "a file of mine"
    theirs.write_bytes(b"as it was")
    (tmp_path / "soul.glia.1").symlink_to(theirs)
    old = body(tmp_path / "old", CheckpointConfig(1.0, str(path), 1, 0.0))
    for number in range(2):
        old.say("a", number)
        trio.run(old.checkpointing._make_by_itself, path)
    older = tmp_path / "soul.glia.1"
    assert theirs.read_bytes() == b"as it was"
    assert not older.is_symlink()
    assert older.stat().st_mode & 0o777 == 0o600


def test_noise_in_place_of_a_claim_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = body(tmp_path / "old")
    old.say("a", 1, 2)
    old.checkpoint(tmp_path / "soul.glia")
    files = ClaimFiles(old.state)
    claim_path(tmp_path / "soul.glia").write_bytes(b"noise")
    for _ in range(3):
        trio.run(files.look)
    assert len(caplog.records) == 1
    claim_path(tmp_path / "soul.glia").unlink()
    claim_path(tmp_path / "soul.glia").write_bytes(b"other noise")
    trio.run(files.look)
    assert len(caplog.records) == 2


def test_a_disk_that_hangs_holds_one_thread_and_keeps_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = body(tmp_path / "old")
    old.say("a", 1, 2)
    old.checkpoint(tmp_path / "soul.glia")
    until, begun = threading.Event(), threading.Semaphore(0)

    def hang(*_: object) -> list[object]:
        begun.release()
        until.wait()
        return []

    monkeypatch.setattr("daemon.claim_files._read_new", hang)
    monkeypatch.setattr("daemon.claim_files._PATIENCE_S", 0.01)
    old.conversations.look = ClaimFiles(old.state).look

    async def turns() -> int:
        for _ in range(50):
            await old.conversations.look()
        return trio.to_thread.current_default_thread_limiter().borrowed_tokens

    try:
        assert trio.run(turns) == 0
        assert begun.acquire(timeout=60)
        assert not begun.acquire(blocking=False)
    finally:
        until.set()


def test_what_is_no_file_is_no_claim(tmp_path: Path) -> None:
    old = body(tmp_path / "old")
    old.say("a", 1, 2)
    old.checkpoint(tmp_path / "soul.glia")
    os.mkfifo(claim_path(tmp_path / "soul.glia"))  # reading it would wait for ever
    looks(old)
    old.say("a", 3)


def test_sizes_are_bounded_before_anything_is_read(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(2**40)  # a hole
    new = body(tmp_path / "new")
    with pytest.raises(BadCheckpoint, match="as large"):
        new.restore(large)
    monkeypatch.setattr("glia.graph.checkpoint.MAX_CHECKPOINT_BYTES", 200)
    with pytest.raises(QuotaExceeded):
        body(tmp_path / "old").checkpoint(tmp_path / "x")
    assert not (tmp_path / "x").exists()
    monkeypatch.undo()
    for bad in (b"", b"{", b"[]", b'{"moved": ["x"]}'):
        new.paths.soul_state.write_bytes(bad)
        with pytest.raises(StoreBroken, match="cannot be read"):
            body(tmp_path / "new")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("every_hours = 1", "where to is not said"),
        ('path = "soul.glia"', "must be an absolute path"),
        ("keep = -1", "keep"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "glia.toml").write_text(f"[checkpoint]\n{text}\n")
    with pytest.raises(ConfigError, match=says):
        load_config(tmp_path, None, {})


def test_a_key_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "soul.key"
    assert keep_secret(path, SECRET).name == keep_secret(path, SECRET).name == Soul(SECRET).name
    with pytest.raises(BadRequest, match="already"):
        keep_secret(path, b"\6" * 32)
    path.chmod(0o640)
    with pytest.raises(GliaError, match="open to other users"):
        keep_secret(path, SECRET)
