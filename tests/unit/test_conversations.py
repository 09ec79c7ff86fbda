"""Turns, names, who is at a conversation, and what is to be forgotten: real files, no node."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from msgspec import structs

from daemon.config import ConversationsConfig
from daemon.conversation_files import ConversationFiles
from daemon.conversations import Conversations
from daemon.turns import open_turn
from glia.errors import (
    BadRequest,
    ConversationBusy,
    EngineDied,
    QuotaExceeded,
    StoreBroken,
    StoreFull,
    UnknownConversation,
)
from glia.graph.ids import ModelId
from glia.graph.tokens import unpack_tokens
from glia.local.messages import Emitted, Generated
from glia.local.values import MessageValue, TurnValue
from tests.builders import MODEL
from tests.conversation_parts import (
    SAID,
    answer_of,
    attach_of,
    bytes_of,
    call_of,
    log_of,
    opened,
    run,
    talk,
    tip_of,
    turn_of,
)

PROMPT = list(range(40))
HOUR_S = 3600.0


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "conversations"


def read(conversations: Conversations, name: str) -> tuple[list[int], list[MessageValue]]:
    replay = run(conversations.read, name)
    return list(unpack_tokens(bytes(replay.tokens))), [
        MessageValue(m.role, m.content, m.start, m.end, m.visibility.word) for m in replay.messages
    ]


# -- turns ----------------------------------------------------------------------------------


def test_turns_are_what_was_said_also_for_a_fresh_process(directory: Path) -> None:
    talks = opened(directory)
    asked = [SAID("system", "Be brief.", 2, 10), SAID("user", "Why?", 12, 30)]
    reply = run(talk, talks, PROMPT, [7, 8], turn_of("why", 0, *asked), tip=tip_of(1))
    assert (reply.conversation, reply.warning) == ("why", None)
    more = [*PROMPT, 7, 8, 9, 9, 9]
    run(talk, talks, more, [5], turn_of("why", 42, SAID("user", "And?", 43, 45)), tip=tip_of(2))
    for each in (talks, opened(directory)):
        assert read(each, "why") == (
            [*more, 5],
            [
                *asked,
                SAID("assistant", None, 40, 42),
                SAID("user", "And?", 43, 45),
                SAID("assistant", None, 45, 46),
            ],
        )
        value = each.value("why")
        assert (value.model, value.dtype, value.model_id) == ("echo", "float32", MODEL)
        assert (value.num_tokens, value.num_messages, value.tip) == (46, 5, tip_of(2))
        assert (value.anonymous, value.expires_s, value.running) == (False, None, False)
        assert each.head("why").tips == (tip_of(1), tip_of(2))
        assert log_of(each, "why") == (*more, 5)


def test_a_file_is_for_its_owner_and_named_after_its_conversation(directory: Path) -> None:
    talks = opened(directory)
    for name in ("a", "A", "a.conv", "a" * 64, "0-_."):
        run(talk, talks, PROMPT, [1], turn_of(name))
    made = {path.name: path.stat() for path in directory.iterdir()}
    assert sorted(made) == sorted(f"{name}.conv" for name in talks.names())
    assert {stat.S_IMODE(status.st_mode) for status in made.values()} == {0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert set(opened(directory).names()) == set(talks.names())


@pytest.mark.parametrize(
    "name",
    ["../x", "a/b", ".", "..", ".hidden", "a" * 65, "@0123abcd", "a\0b", "a\n", "ä", "-x", " "],
)
def test_a_name_that_cannot_be_makes_no_file(directory: Path, name: str) -> None:
    talks = opened(directory)
    with pytest.raises(BadRequest, match="can be called") as caught:
        run(talk, talks, PROMPT, [1], turn_of(name))
    assert "a letter or a digit first" in (caught.value.hint or "")
    assert bytes_of(directory) == {}
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]


def test_what_is_to_be_made_and_what_is_to_be_there(directory: Path) -> None:
    talks = opened(directory)
    with pytest.raises(UnknownConversation, match="no conversation 'new'"):
        run(talk, talks, PROMPT, [1], turn_of("new", create=False))
    run(talk, talks, PROMPT, [1], turn_of("new", create=True))
    with pytest.raises(BadRequest, match="already"):
        run(talk, talks, PROMPT, [1], turn_of("new", create=True))
    run(talk, talks, PROMPT, [2], turn_of("new", 40, create=False))
    run(talk, talks, PROMPT, [3], turn_of("new", 40))
    assert read(talks, "new")[0] == [*PROMPT, 3]


def test_without_a_name_each_is_an_anonymous_one(directory: Path) -> None:
    talks = opened(directory)
    names = [run(talk, talks, PROMPT, [1], turn).conversation for turn in (None, turn_of())]
    assert len(set(names)) == 2
    for name in names:
        assert name.startswith("@")
        assert len(name) == 9
        assert talks.value(name).anonymous
        assert read(talks, name) == ([*PROMPT, 1], [SAID("assistant", None, 40, 41)])
    run(talk, talks, [*PROMPT, 1, 2], [3], turn_of(names[0], 41))
    assert talks.value(names[0]).num_tokens == 43


@pytest.mark.parametrize(
    ("prompt", "keep"),
    [(PROMPT, 41), ([*PROMPT[:20], 99], 21), ([99, *PROMPT], 1), ([*PROMPT, 7, 7], 42)],
    ids=["more than the prompt", "another token", "moved", "more than the log"],
)
def test_a_turn_that_keeps_what_is_not_there(directory: Path, prompt: list[int], keep: int) -> None:
    talks = opened(directory)
    run(talk, talks, PROMPT, [7], turn_of("a"))
    before = bytes_of(directory)
    with pytest.raises(BadRequest, match="does not begin with") as caught:
        run(talk, talks, prompt, [1], turn_of("a", keep))
    assert "read the conversation again" in (caught.value.hint or "")
    assert bytes_of(directory) == before
    with pytest.raises(BadRequest, match="does not begin with"):
        run(talk, talks, PROMPT, [1], turn_of("b", 1))


def test_keeping_less_drops_the_rest_and_its_messages(directory: Path) -> None:
    talks = opened(directory)
    asked = [SAID("user", "first", 0, 10), SAID("user", "second", 10, 40)]
    run(talk, talks, PROMPT, [7], turn_of("a", 0, *asked), tip=tip_of(1))
    run(talk, talks, [*PROMPT[:20], 3], [4], turn_of("a", 20), tip=tip_of(2))
    assert read(talks, "a") == (
        [*PROMPT[:20], 3, 4],
        [asked[0], SAID("user", None, 10, 20), SAID("assistant", None, 21, 22)],
    )
    assert talks.head("a").tips == (tip_of(1), tip_of(2))  # forgetting needs them all


def test_another_model_or_dtype_is_refused_and_named(directory: Path) -> None:
    talks = opened(directory)
    run(talk, talks, PROMPT, [7], turn_of("a"))
    before = bytes_of(directory)
    other = attach_of(b"\xee" * 32)
    with pytest.raises(BadRequest, match=r"a is of model echo \(000102030405\), not of echo \(ee"):
        run(talk, talks, [*PROMPT, 7, 1], [1], turn_of("a", 41), attach=other)
    with pytest.raises(BadRequest, match="computed in float32, not in bfloat16") as refused:
        run(talk, talks, [*PROMPT, 7, 1], [1], turn_of("a", 41), dtype="bfloat16")
    assert "--canonical" in str(refused.value.hint)
    assert bytes_of(directory) == before

    async def dtype() -> str | None:
        async with open_turn(talks, call_of(PROMPT, turn_of("a", 40))) as turn:
            return turn.dtype

    assert run(dtype) == "float32"  # what a request without one gets


@pytest.mark.parametrize(
    "messages",
    [
        [SAID("user", "x", 0, 41)],
        [SAID("user", "x", 5, 4)],
        [SAID("user", "x", 0, 10), SAID("user", "y", 9, 20)],
        [SAID("user", "x" * (960 * 1024 + 1), 0, 40)],
        [SAID("user", "x", 0, 40, "secret")],
        [SAID("user", "x", 0, 0)] * 2**14,
    ],
    ids=["past the prompt", "backwards", "overlap", "long text", "no label", "too many"],
)
def test_messages_that_cannot_be(directory: Path, messages: list[MessageValue]) -> None:
    talks = opened(directory)
    with pytest.raises(BadRequest) as caught:
        run(talk, talks, PROMPT, [1], turn_of("a", 0, *messages))
    assert caught.value.hint
    assert "a" not in talks


def labels(conversations: Conversations, name: str) -> list[str]:
    return [message.visibility for message in read(conversations, name)[1]]


def test_labels_only_get_stricter(directory: Path) -> None:
    talks = opened(directory)
    asked = [
        SAID("system", "a", 0, 10, "public"),
        SAID("user", "b", 10, 20, "aggregate"),
        SAID("user", "c", 20, 40, "public"),
    ]
    run(talk, talks, PROMPT, [7], turn_of("a", 0, *asked))
    assert labels(talks, "a") == ["public", "aggregate", "aggregate", "aggregate"]
    assert talks.value("a").visibility == "aggregate"
    open_again = [SAID("user", "d", 41, 45, "public")]
    run(talk, talks, [*PROMPT, 7, *[1] * 4], [8], turn_of("a", 41, *open_again))
    assert labels(talks, "a")[4:] == ["aggregate", "aggregate"]
    # cut inside of the second message: what is kept of it is as it was
    run(talk, talks, [*PROMPT[:15], 3], [4], turn_of("a", 15, SAID("user", "e", 15, 16, "public")))
    assert labels(talks, "a") == ["public", "aggregate", "aggregate", "aggregate"]
    # at the end of the first one, what follows may be public again
    run(talk, talks, [*PROMPT[:10], 3], [4], turn_of("a", 10, SAID("user", "f", 10, 11, "public")))
    assert labels(talks, "a") == ["public", "public", "public"]
    assert opened(directory).value("a").visibility == "public"


def test_tokens_between_messages_are_as_strict_as_what_they_lead_to(directory: Path) -> None:
    talks = opened(directory)
    asked = [SAID("system", "a", 0, 10, "public"), SAID("user", "b", 20, 40, "private")]
    run(talk, talks, PROMPT, [7], turn_of("a", 0, *asked))
    run(talk, talks, [*PROMPT[:15], 3], [4], turn_of("a", 15, SAID("user", "e", 15, 16, "public")))
    assert labels(talks, "a") == ["public", "private", "private"]


def test_what_no_message_covers_is_private(directory: Path) -> None:
    talks = opened(directory)
    run(talk, talks, PROMPT, [7], turn_of("a"))
    run(talk, talks, [*PROMPT, 7, 1], [4], turn_of("a", 41, SAID("user", "e", 41, 42, "public")))
    assert labels(talks, "a") == ["private"] * 3
    run(talk, talks, PROMPT, [7], turn_of("b", 0, SAID("user", "e", 0, 40, "public")))
    run(talk, talks, [*PROMPT, 7, 1], [4], turn_of("b", 41))
    assert labels(talks, "b") == ["public", "public", "private"]


# -- who is at it ---------------------------------------------------------------------------


def test_one_turn_at_a_time(directory: Path) -> None:
    talks = opened(directory)

    async def main() -> None:
        for name in ("new", "old"):
            async with open_turn(talks, call_of(PROMPT, turn_of(name))):
                with pytest.raises(ConversationBusy, match="being answered in") as caught:
                    await talk(talks, PROMPT, [1], turn_of(name))
                assert caught.value.hint
                with pytest.raises(ConversationBusy, match="answered in"), talks.hold(name):
                    pass
                if name == "new":
                    with pytest.raises(ConversationBusy, match="answered in"):
                        await talks.read(name)
                with pytest.raises((ConversationBusy, BadRequest)), talks.making(name):
                    pass
                await talk(talks, PROMPT, [1], turn_of("other"))
                if name in talks:
                    assert talks.value(name).running
            await talk(talks, PROMPT, [1], turn_of(name))  # it is free again
            if name == "new":
                await talk(talks, PROMPT, [1], turn_of("old"))
        with talks.hold("old"):
            with pytest.raises(ConversationBusy, match="being forgotten"):
                await talk(talks, PROMPT, [1], turn_of("old", 40))
            with pytest.raises(ConversationBusy), talks.hold("old"):
                pass
        with talks.making("made"), pytest.raises(ConversationBusy, match="being made"):
            await talk(talks, PROMPT, [1], turn_of("made"))
        with pytest.raises(UnknownConversation), talks.hold("nobody"):
            pass

    run(main)


def test_a_turn_that_fails_leaves_all_as_it_was(directory: Path) -> None:
    talks = opened(directory)
    run(talk, talks, PROMPT, [7], turn_of("a"))
    before = bytes_of(directory)

    async def fails(name: str, keep: int) -> None:
        async with open_turn(talks, call_of([*PROMPT, 7, 1], turn_of(name, keep))) as turn:
            turn.accept(attach_of())
            raise StoreBroken("the engine died")

    for name, keep in (("a", 41), ("new", 0), ("", 0)):
        with pytest.raises(StoreBroken):
            run(fails, name, keep)
    assert bytes_of(directory) == before
    assert talks.names() == ["a"]
    run(talk, talks, [*PROMPT, 7, 1], [2], turn_of("a", 41))


@pytest.mark.spec(65)
def test_what_was_cancelled_before_its_first_token_is_no_turn(directory: Path) -> None:
    talks = opened(directory)
    run(talk, talks, PROMPT, [7], turn_of("a"))
    before = bytes_of(directory)

    async def cancelled(prompt: list[int], turn: TurnValue, answer: list[int]) -> Generated:
        call = call_of(prompt, turn)
        async with open_turn(talks, call) as under_way:
            under_way.accept(attach_of())
            return await under_way.commit(answer_of(call, answer, reason="cancelled"))

    for turn in (turn_of("a", 40), turn_of("new"), turn_of()):
        reply = run(cancelled, PROMPT, turn, [])
        assert (reply.conversation, reply.warning) == ("", None)
    assert bytes_of(directory) == before
    assert run(cancelled, PROMPT, turn_of("a", 40), [3]).conversation == "a"
    assert read(talks, "a")[0] == [*PROMPT, 3]


def test_going_away_does_not_stop_what_is_being_written(directory: Path) -> None:
    talks = opened(directory)

    async def main() -> None:
        call = call_of(PROMPT, turn_of("a"))
        with trio.CancelScope() as scope:
            async with open_turn(talks, call) as turn:
                turn.accept(attach_of())
                scope.cancel()
                await turn.commit(answer_of(call, [7]))
                await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught

    run(main)
    assert read(opened(directory), "a")[0] == [*PROMPT, 7]


@contextlib.contextmanager
def files_up_to(num_bytes: int) -> Iterator[None]:
    """A disk on which no file can be larger (Python ignores the signal)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.fault("F5")
def test_the_answer_comes_where_it_cannot_be_written(directory: Path) -> None:
    talks = opened(directory)
    run(talk, talks, PROMPT, [7], turn_of("a"))
    before = bytes_of(directory)
    for at in range(0, 200, 20):
        with files_up_to(len(before["a.conv"]) + at):
            reply = run(talk, talks, [*PROMPT, 7, *PROMPT], [2], turn_of("a", 41))
        assert reply.tokens == [2]
        assert reply.conversation == ""
        assert "not recorded" in (reply.warning or "")
        assert bytes_of(directory) == before
    with files_up_to(100):
        reply = run(talk, talks, PROMPT, [2], turn_of("new"))
    assert reply.conversation == ""
    assert bytes_of(directory) == before
    assert "new" not in talks
    assert run(talk, talks, [*PROMPT, 7, 1], [2], turn_of("a", 41)).warning is None
    assert read(opened(directory), "a")[0] == [*PROMPT, 7, 1, 2]


def test_both_warnings_are_told(directory: Path) -> None:
    talks = opened(directory)

    async def main() -> str | None:
        call = call_of(PROMPT, turn_of("a"))
        async with open_turn(talks, call) as turn:
            turn.accept(attach_of())
            answer = structs.replace(answer_of(call, [1]), warning="windows are not on disk")
            with files_up_to(10):
                return (await turn.commit(answer)).warning

    said = run(main) or ""
    assert said.startswith("windows are not on disk; the conversation was not recorded: ")


def test_a_clock_that_goes_back_makes_nothing_older(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks = opened(directory)
    run(talk, talks, PROMPT, [7], turn_of("a"))
    used_s = talks.value("a").used_s
    monkeypatch.setattr("daemon.turns._now_us", lambda: 1_000_000)
    run(talk, talks, PROMPT, [8], turn_of("a", 40))
    run(talk, talks, PROMPT, [8], turn_of("b"))
    assert (talks.value("a").used_s, talks.value("b").used_s) == (used_s, 1.0)


def test_a_file_that_is_gone_is_a_conversation_that_is_gone(directory: Path) -> None:
    talks = opened(directory)
    for name in ("a", "b"):
        run(talk, talks, PROMPT, [7], turn_of(name))
    (directory / "a.conv").unlink()
    with pytest.raises(UnknownConversation):
        run(talks.read, "a")
    assert talks.names() == ["b"]
    run(talk, talks, PROMPT, [7], turn_of("a", create=True))

    async def meanwhile() -> str | None:
        call = call_of([*PROMPT, 7, 1], turn_of("b", 41))
        async with open_turn(talks, call) as turn:
            turn.accept(attach_of())
            (directory / "b.conv").unlink()
            return (await turn.commit(answer_of(call, [2]))).warning

    assert "not recorded" in (run(meanwhile) or "")
    assert talks.names() == ["a"]


def test_a_file_has_an_end(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    talks = opened(directory)
    run(talk, talks, PROMPT, [7], turn_of("a"))
    before = bytes_of(directory)
    monkeypatch.setattr("daemon.conversation_files.MAX_FILE_BYTES", len(before["a.conv"]) + 50)
    reply = run(talk, talks, [*PROMPT, 7, 1], [2], turn_of("a", 41))
    assert "larger than" in (reply.warning or "")
    assert (reply.conversation, reply.tokens) == ("", [2])
    assert bytes_of(directory) == before


# -- what proves to be damaged while gliad runs ---------------------------------------------


def two_turns(directory: Path, name: str = "a") -> tuple[Conversations, bytes, int]:
    """One of two turns; its file, and where the second of them begins."""
    talks = opened(directory)
    run(talk, talks, PROMPT, [7], turn_of(name), tip=tip_of(1))
    size_bytes = (directory / f"{name}.conv").stat().st_size
    run(talk, talks, [*PROMPT, 7, 1], [2], turn_of(name, 41), tip=tip_of(2))
    return talks, (directory / f"{name}.conv").read_bytes(), size_bytes


def damage(directory: Path, at: int, name: str = "a") -> bytes:
    path = directory / f"{name}.conv"
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    return bytes(data)


def counts(talks: Conversations) -> tuple[int, int]:
    return talks.counters["conversations_cut"], talks.counters["conversations_bad"]


def test_what_is_whole_of_a_damaged_one_is_read_and_gone_on_with(directory: Path) -> None:
    talks, whole, second_at = two_turns(directory)
    damaged = damage(directory, -1)
    assert read(talks, "a")[0] == [*PROMPT, 7]
    assert bytes_of(directory) == {"a.conv": whole[:second_at], "a.bad": damaged}
    assert counts(talks) == (1, 1)
    assert (talks.value("a").num_tokens, talks.head("a").tips) == (41, (tip_of(1),))
    run(talk, talks, [*PROMPT, 7, 5], [6], turn_of("a", 41))
    assert counts(talks) == (1, 1)
    assert read(opened(directory), "a")[0] == [*PROMPT, 7, 5, 6]


def test_a_damaged_one_cannot_be_gone_on_with_as_if_it_were_whole(directory: Path) -> None:
    talks, whole, second_at = two_turns(directory)
    damage(directory, -1)
    with pytest.raises(BadRequest, match="does not begin with"):
        run(talk, talks, [*PROMPT, 7, 1, 2, 3], [4], turn_of("a", 43))
    assert (directory / "a.conv").read_bytes() == whole[:second_at]
    run(talk, talks, [*PROMPT, 7, 5], [6], turn_of("a", 41))


def test_where_nothing_of_it_is_whole_all_is_set_aside(directory: Path) -> None:
    talks, *_ = two_turns(directory)
    damaged = damage(directory, 0)
    for _ in range(2):
        with pytest.raises(StoreBroken, match="could not be read and was set aside") as caught:
            run(talks.read, "a")
        assert caught.value.hint == "gliad forget a removes it for good"
    assert bytes_of(directory) == {"a.bad": damaged}
    assert (talks.names(), counts(talks)) == ([], (0, 1))
    run(talk, talks, PROMPT, [7], turn_of("a", create=True))


def test_one_whose_end_is_gone_says_what_is_left(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Cut where a turn ends: nothing is damaged, and yet there was more."""
    talks, whole, second_at = two_turns(directory)
    (directory / "a.conv").write_bytes(whole[:second_at])
    assert read(talks, "a")[0] == [*PROMPT, 7]
    assert (counts(talks), bytes_of(directory)) == ((1, 0), {"a.conv": whole[:second_at]})
    assert "a: its last turns are lost" in caplog.text
    run(talk, talks, [*PROMPT, 7, 5], [6], turn_of("a", 41))


def test_several_who_find_it_damaged_set_it_aside_once(directory: Path) -> None:
    talks, *_ = two_turns(directory)
    damage(directory, -1)
    said: list[int] = []

    async def read_it() -> None:
        said.append((await talks.read("a")).head.num_tokens)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(read_it)

    run(main)
    assert said == [41] * 8
    assert counts(talks) == (1, 1)
    assert sorted(bytes_of(directory)) == ["a.bad", "a.conv"]


def test_a_damaged_one_is_mended_by_nobody_while_somebody_answers_in_it(directory: Path) -> None:
    talks, _, second_at = two_turns(directory)

    async def main() -> Generated:
        call = call_of([*PROMPT, 7, 1, 2, 3], turn_of("a", 43))
        async with open_turn(talks, call) as turn:
            turn.accept(attach_of())
            damage(directory, second_at - 1)
            with pytest.raises(StoreBroken, match="a is damaged") as caught:
                await talks.read("a")
            assert "nobody is at it" in (caught.value.hint or "")
            return await turn.commit(answer_of(call, [4]))

    reply = run(main)
    assert (reply.conversation, reply.warning) == ("a", None)
    assert talks.value("a").num_tokens == 45
    assert log_of(talks, "a") == ()  # the first turn is damaged, and the others stand on it
    assert sorted(bytes_of(directory)) == ["a.bad", "a.conv"]


def test_who_finds_it_damaged_in_the_last_free_thread_waits_for_no_other(directory: Path) -> None:
    talks, *_ = two_turns(directory)
    damage(directory, -1)

    async def main() -> bytes:
        trio.to_thread.current_default_thread_limiter().total_tokens = 1
        with trio.fail_after(20):
            return await trio.to_thread.run_sync(talks.past(["a"]).log, "a")

    assert unpack_tokens(run(main)) == (*PROMPT, 7)


def test_what_cannot_be_set_aside_stays_as_it_is(directory: Path) -> None:
    talks, *_ = two_turns(directory)
    damaged = damage(directory, -1)
    with files_up_to(100), pytest.raises(StoreBroken, match="cannot be set aside") as caught:
        run(talks.read, "a")
    assert "free some space" in (caught.value.hint or "")
    assert (bytes_of(directory), counts(talks)) == ({"a.conv": damaged}, (0, 0))
    assert log_of(talks, "a") == (*PROMPT, 7)


# -- forgetting -----------------------------------------------------------------------------


def anonymous(talks: Conversations, num: int) -> list[str]:
    return [run(talk, talks, PROMPT, [7]).conversation for _ in range(num)]


def test_anonymous_ones_expire_by_age_and_by_number(directory: Path) -> None:
    talks = opened(directory, ConversationsConfig(anonymous_hours=2.0, max_anonymous=3))
    names = anonymous(talks, 5)
    run(talk, talks, PROMPT, [7], turn_of("named"))
    now_s = talks.value(names[0]).used_s
    assert talks.expired(now_s) == names[:2]
    assert talks.expired(now_s + HOUR_S) == names[:2]
    last_s = talks.value(names[-1]).used_s
    assert talks.expired(last_s + 2 * HOUR_S + 1) == names
    assert talks.value(names[0]).expires_s == pytest.approx(now_s + 2 * HOUR_S)
    run(talk, talks, [*PROMPT, 7, 1], [2], turn_of(names[0], 41))  # used: the last one to go
    assert talks.expired(now_s) == names[1:3]
    with talks.hold(names[1]):
        assert names[1] not in talks.expired(last_s + 9 * HOUR_S)


def test_anonymous_files_have_so_much_room(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks = opened(directory)
    names = anonymous(talks, 4)
    size = (directory / f"{names[0]}.conv").stat().st_size
    monkeypatch.setattr("daemon.expiry._MAX_BYTES", 2 * size + 1)
    assert talks.expired(talks.value(names[0]).used_s) == names[:2]


def test_no_hours_means_that_nothing_is_told_and_all_is_to_be_forgotten(directory: Path) -> None:
    talks = opened(directory, ConversationsConfig(anonymous_hours=0.0))
    changes: list[int] = []
    talks.on_change = lambda: changes.append(1)
    secret = SAID("user", "the secret text", 0, 40)
    reply = run(talk, talks, PROMPT, [7], turn_of("", 0, secret), tip=tip_of(3))
    assert (reply.conversation, reply.warning) == ("", None)
    assert len(changes) == 2  # made, and given back
    assert talks.names() == []
    for each in (talks, opened(directory)):  # a crash does not keep it
        (name,) = each.marked()
        assert each.head(name).tips == (tip_of(3),)
        assert log_of(each, name) == (*PROMPT, 7)
    assert not any(b"secret" in data for data in bytes_of(directory).values())
    assert run(talk, talks, PROMPT, [7], turn_of("named")).conversation == "named"


@pytest.mark.parametrize("name", ["", "named"])
def test_where_nothing_is_kept_a_turn_that_fails_is_to_be_forgotten(
    directory: Path, name: str
) -> None:
    """With what there was of its answer: its first window may not end before that."""
    talks = opened(directory, ConversationsConfig(anonymous_hours=0.0))

    async def main(prompt: list[int], keep: int = 0) -> None:
        secret = SAID("user", "the secret text", keep, len(prompt))
        call = call_of(prompt, turn_of(name, keep, secret))
        async with open_turn(talks, call) as under_way:
            under_way.accept(attach_of())
            under_way.take(Emitted(1, [7, 8]))
            raise EngineDied("it died")

    with pytest.raises(EngineDied):
        run(main, PROMPT[:9])
    (failed,) = opened(directory).marked()
    assert failed.startswith("@")
    assert (talks.names(), talks.forgettable()) == ([], [failed])
    assert log_of(talks, failed) == (*PROMPT[:9], 7, 8)
    assert not any(b"secret" in data for data in bytes_of(directory).values())
    assert not talks.strays
    if name:  # free for another try; what fails in it then is forgotten with it, or at once
        run(talk, talks, PROMPT, [7], turn_of(name))
        with pytest.raises(EngineDied):
            run(main, [*PROMPT, 7, 5], len(PROMPT) + 1)
        assert (talks.marked(), talks.strays) == ([failed], False)
        with pytest.raises(EngineDied):
            run(main, [3, 4])
        assert log_of(talks, talks.marked()[1]) == (3, 4, 7, 8)
        assert log_of(talks, name) == (*PROMPT, 7)


def test_where_nothing_is_kept_going_away_is_no_way_to_leave_something(directory: Path) -> None:
    talks = opened(directory, ConversationsConfig(anonymous_hours=0.0))

    async def main() -> None:
        with trio.CancelScope() as scope:
            async with open_turn(talks, call_of(PROMPT)) as under_way:
                under_way.accept(attach_of())
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught

    run(main)
    (name,) = opened(directory).marked()
    assert (log_of(talks, name), talks.strays) == (tuple(PROMPT), False)


@pytest.mark.parametrize("name", ["", "named"])
def test_where_nothing_is_kept_what_had_no_engine_leaves_nothing(
    directory: Path, name: str
) -> None:
    talks = opened(directory, ConversationsConfig(anonymous_hours=0.0))

    async def main() -> None:
        async with open_turn(talks, call_of(PROMPT, turn_of(name))):
            raise EngineDied("it never began")

    with pytest.raises(EngineDied):
        run(main)
    assert (talks.marked(), talks.strays) == ([], False)


def test_what_is_kept_for_hours_may_be_tried_again(directory: Path) -> None:
    async def main() -> None:
        async with open_turn(talks, call_of(PROMPT)) as under_way:
            under_way.accept(attach_of())
            raise EngineDied("it died")

    talks = opened(directory)
    with pytest.raises(EngineDied):
        run(main)
    assert (talks.names(), talks.marked()) == ([], [])


def test_what_cannot_be_marked_is_a_stray(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    talks = opened(directory, ConversationsConfig(anonymous_hours=0.0))

    def full(*_: object) -> None:
        raise StoreFull("full")

    monkeypatch.setattr(talks._files, "create", full)
    reply = run(talk, talks, PROMPT, [7])
    assert "not recorded" in (reply.warning or "")
    assert talks.strays


def test_a_marked_one_is_to_be_forgotten_until_it_is(directory: Path) -> None:
    talks = opened(directory)
    run(talk, talks, PROMPT, [7], turn_of("a"), tip=tip_of(1))

    async def mark() -> None:
        with talks.hold("a"):
            await talks.mark("a")
            await talks.mark("a")  # again is no matter

    run(mark)
    for each in (talks, opened(directory)):
        assert (each.names(), each.marked()) == ([], ["a"])
        assert each.head("a").tips == (tip_of(1),)
        with pytest.raises(ConversationBusy, match="being forgotten"):
            run(talk, each, PROMPT, [1], turn_of("a"))
        assert log_of(each, "a") == (*PROMPT, 7)
    fd = os.open(directory / "a.forget", os.O_RDONLY)
    try:

        async def remove() -> None:
            with talks.hold("a"):
                await talks.remove("a")

        run(remove)
        assert set(os.pread(fd, 1 << 20, 0)) == {0}
    finally:
        os.close(fd)
    assert bytes_of(directory) == {}
    assert (talks.marked(), opened(directory).marked()) == ([], [])
    run(talk, talks, PROMPT, [1], turn_of("a"))


def test_one_that_is_read_while_it_is_marked_is_marked(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks = opened(directory)
    run(talk, talks, PROMPT, [1], turn_of("a", 0))
    mark = ConversationFiles.mark

    async def reads() -> None:
        with pytest.raises(UnknownConversation):
            await talks.read("a")

    def mark_and_have_it_read(files: ConversationFiles, name: str) -> None:
        mark(files, name)
        trio.from_thread.run(reads)

    monkeypatch.setattr(ConversationFiles, "mark", mark_and_have_it_read)

    async def forget() -> None:
        with talks.hold("a"):
            await talks.mark("a")
            assert (talks.names(), talks.marked()) == ([], ["a"])
            await talks.remove("a")

    run(forget)
    assert talks.marked() == []
    assert list(directory.iterdir()) == []


def test_what_is_being_answered_is_told_with_its_model(directory: Path) -> None:
    talks = opened(directory)
    run(talk, talks, PROMPT, [7], turn_of("a"), tip=tip_of(1))

    async def main() -> None:
        def running() -> list[tuple[ModelId, list[int]]]:
            return [(model_id, said.tokens) for model_id, said in talks.running()]

        assert running() == []
        async with (
            open_turn(talks, call_of([*PROMPT, 7, 1], turn_of("a", 41))),
            open_turn(talks, call_of([5, 6], turn_of("b"))) as other,
        ):
            assert running() == [(MODEL, [*PROMPT, 7, 1])]  # b's is not known yet
            other.accept(attach_of())
            other.take(Emitted(1, [8]))
            assert running() == [(MODEL, [*PROMPT, 7, 1]), (MODEL, [5, 6, 8])]
        assert running() == []

    run(main)


def test_changes_are_told(directory: Path) -> None:
    talks = opened(directory)
    counter = itertools.count()
    talks.on_change = lambda: next(counter) and None
    run(talk, talks, PROMPT, [7], turn_of("a"))
    run(talk, talks, PROMPT, [7], turn_of("a", 40))

    async def forget() -> None:
        with talks.hold("a"):
            await talks.mark("a")
            await talks.remove("a")

    run(forget)
    assert next(counter) == 4


# -- listing --------------------------------------------------------------------------------


def test_a_listing_has_the_last_used_first(directory: Path) -> None:
    talks = opened(directory)
    for name in ("a", "b", "c"):
        run(talk, talks, PROMPT, [7], turn_of(name))
    run(talk, talks, PROMPT, [8], turn_of("a", 40))
    names = [value.name for value in talks.values(0, 10)]
    assert names == ["a", "c", "b"]
    assert [value.name for value in talks.values(1, 1)] == ["c"]
    assert talks.values(3, 10) == []
    assert [value.name for value in opened(directory).values(0, 10)] == names


def test_there_is_an_end_to_conversations(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    talks = opened(directory)
    run(talk, talks, PROMPT, [7], turn_of("a"))
    monkeypatch.setattr("daemon.conversations._MAX_CONVERSATIONS", 1)
    with pytest.raises(QuotaExceeded) as caught:
        run(talk, talks, PROMPT, [7], turn_of("b"))
    assert "gliad forget" in (caught.value.hint or "")
    run(talk, talks, PROMPT, [7], turn_of("a", 40))
