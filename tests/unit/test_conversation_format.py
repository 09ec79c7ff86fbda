"""Files of conversations are what 8-conversation.md says: frozen, strict, for any reader."""

from __future__ import annotations

import ast
import json
import math
import random
import struct
from collections.abc import Callable
from dataclasses import astuple, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from glia.errors import MalformedParticle, StoreVersion
from glia.graph.conversation import Begin, Message, Origin, Record, Replay, Turn
from glia.graph.group import GroupId
from glia.graph.ids import ModelId, WindowId
from glia.graph.journal import HEAD_BYTES, begin_file, encode_record, read_journal, upgraded
from glia.graph.privacy import Visibility
from glia.graph.tokens import unpack_tokens
from tests.vectors import conversation_reference, make_conversation
from tests.vectors.make_conversation import FILES

NAMES = list(FILES)
GROUP, OTHER = GroupId(bytes(32)), GroupId(bytes([1]) * 32)
FRAME = 24


def vector(name: str) -> bytes:
    return bytes.fromhex(json.loads(make_conversation.FILE.read_text())["files"][name])


def ends(data: bytes) -> list[int]:
    """Where each record ends."""
    return [end for _, _, end in conversation_reference.split(data)]


def framed(*bodies: tuple[int, bytes], head: bytes = vector("talk")[:HEAD_BYTES]) -> bytes:
    """A file of these records with right checks, whatever they say."""
    data, check = head, blake3(head).digest()[:16]
    for kind, body in bodies:
        frame = struct.pack("<IHH", len(body), kind, 0)
        check = blake3(check + frame + body).digest()[:16]
        data += frame + check + body
    return data


def bodies(name: str) -> list[tuple[int, bytes]]:
    return [(kind, body) for kind, body, _ in conversation_reference.split(vector(name))]


def assert_same(replay: Replay, said: dict[str, Any]) -> None:
    """What glia read is what the reference read."""
    head = replay.head
    begin = head.begin
    assert list(unpack_tokens(bytes(replay.tokens))) == said["tokens"]
    assert [
        {
            "role": m.role, "text": m.content, "start": m.start, "end": m.end,
            "label": m.visibility, "how": astuple(m.sampling) if m.sampling else None,
        }
        for m in replay.messages
    ] == said["messages"]  # fmt: skip
    assert (list(head.tips), head.tip, head.used_us) == (said["tips"], said["tip"], said["used"])
    assert (begin.name, begin.model, begin.dtype) == (said["name"], said["model"], said["dtype"])
    assert (begin.model_id, begin.created_us) == (said["model_id"], said["created"])
    assert (head.num_public, head.group) == (said["public"], said["group"])
    origin = (head.origin.name, head.origin.num_tokens) if head.origin else None
    assert origin == said["origin"]
    assert (head.num_tokens, head.num_messages) == (len(said["tokens"]), len(said["messages"]))
    assert head.text_bytes == sum(len((m["text"] or "").encode()) for m in said["messages"])


def test_the_vector_is_what_is_written() -> None:
    assert make_conversation.build() == json.loads(make_conversation.FILE.read_text())


def test_the_reference_shares_no_code() -> None:
    tree = ast.parse(Path(conversation_reference.__file__).read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {"struct", "blake3"}


@pytest.mark.parametrize("name", NAMES)
def test_both_read_the_vector(name: str) -> None:
    data = vector(name)
    journal = read_journal(data)
    said = conversation_reference.read(data)
    assert_same(journal.replay, said)
    assert journal.size_bytes == said["size"] == len(data)
    assert journal.check == begin_file(FILES[name])[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_cut_anywhere_is_its_whole_records(name: str) -> None:
    data = vector(name)
    for length in range(len(data)):
        cut = data[:length]
        if length < ends(data)[0]:
            with pytest.raises(MalformedParticle):
                read_journal(cut)
            continue
        journal = read_journal(cut)
        assert journal.size_bytes == max(end for end in ends(data) if end <= length)
        assert_same(journal.replay, conversation_reference.read(cut))


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_ends_the_file_before_its_record(name: str) -> None:
    data = vector(name)
    first, *_ = found = ends(data)
    rng = random.Random(name)
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1 << rng.randrange(8)
        if at < first:
            with pytest.raises(MalformedParticle):
                read_journal(bytes(bad))
        else:
            journal = read_journal(bytes(bad))
            assert journal.size_bytes == max(end for end in found if end <= at)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "group"])
def test_a_file_of_version_1_is_read_and_written_anew(name: str) -> None:
    files = json.loads(make_conversation.FILE.with_name("conversation_1.json").read_text())["files"]
    old = bytes.fromhex(files[name])
    was, new = read_journal(old), upgraded(old)
    assert_same(was.replay, conversation_reference.read(old))
    now = read_journal(new)
    assert (was.version, now.version, len(new)) == (1, 2, len(old))
    assert (now.turns, now.replay.messages) == (was.turns, was.replay.messages)
    assert now.replay.head == was.replay.head
    assert_same(now.replay, conversation_reference.read(new))
    assert new == begin_file([_unsaid(record) for record in FILES[name]])[0]


def _unsaid(record: Record) -> Record:
    """As a gliad wrote it that did not say how answers were chosen."""
    if not isinstance(record, Turn):
        return record
    return replace(record, messages=tuple(replace(m, sampling=None) for m in record.messages))


def test_version_1_has_no_groups() -> None:
    with pytest.raises(MalformedParticle, match="range"):
        read_journal(framed(*bodies("group"), head=b"GCNV" + struct.pack("<HH", 1, 0)))


def test_version_1_says_of_no_answer_how_it_was_chosen() -> None:
    with pytest.raises(MalformedParticle, match="range"):
        read_journal(framed(*bodies("talk"), head=b"GCNV" + struct.pack("<HH", 1, 0)))


def test_records_cannot_be_swapped_or_left_out() -> None:
    data = vector("talk")
    at = ends(data)
    parts = [data[start:end] for start, end in pairwise(at)]
    for changed in ([parts[1], parts[0], parts[2]], parts[1:], [parts[0], parts[2]]):
        journal = read_journal(data[: at[0]] + b"".join(changed))
        num_same = next(n for n in range(3) if changed[n] != parts[n])
        assert journal.size_bytes == at[num_same]


def test_a_newer_version_is_refused_and_a_flipped_one_is_damage() -> None:
    newer = framed(*bodies("talk"), head=b"GCNV" + struct.pack("<HH", 3, 0))
    with pytest.raises(StoreVersion, match="version 3") as caught:
        read_journal(newer)
    assert caught.value.hint
    with pytest.raises(MalformedParticle):
        read_journal(b"GCNV\3\0" + vector("talk")[6:])
    for head in (struct.pack("<HH", 0, 0), struct.pack("<HH", 2, 1)):
        with pytest.raises(MalformedParticle):
            read_journal(framed(*bodies("talk"), head=b"GCNV" + head))


BEGIN, FIRST, SECOND, _ = FILES["talk"]
assert isinstance(BEGIN, Begin)
assert isinstance(FIRST, Turn)
assert isinstance(SECOND, Turn)
MESSAGE = FIRST.messages[0]


def turn(**fields: Any) -> Turn:
    """A turn of four tokens after nothing."""
    made: dict[str, Any] = {
        "used_us": 1, "keep": 0, "tokens": (1, 2, 3, 4), "messages": (), "tip": None,
    }  # fmt: skip
    return Turn(**(made | fields))


def say(start: int, end: int, label: Visibility = Visibility.PRIVATE) -> Message:
    return Message("user", None, start, end, label)


WRONG: dict[str, list[Record]] = {
    "keeps more than there is": [BEGIN, turn(keep=1)],
    "a message past the end": [BEGIN, turn(messages=(say(0, 5),))],
    "a message that ends before it starts": [BEGIN, turn(messages=(say(3, 2),))],
    "messages that overlap": [BEGIN, turn(messages=(say(0, 2), say(1, 4)))],
    "a message in what is kept": [BEGIN, turn(), turn(keep=4, messages=(say(2, 5),))],
    "a label that is looser": [
        BEGIN, turn(messages=(say(0, 2), say(2, 4, Visibility.AGGREGATE))),
    ],
    "a label looser than what is kept": [
        BEGIN, turn(messages=(say(0, 4),)), turn(keep=2, messages=(say(2, 4, Visibility.PUBLIC),)),
    ],
    "a label looser than tokens without a message": [
        BEGIN, turn(), turn(keep=2, messages=(say(2, 4, Visibility.AGGREGATE),)),
    ],
    "a group without a message of its": [BEGIN, turn(messages=(say(0, 4),), group=GROUP)],
    "a group's messages after another's": [
        BEGIN, turn(messages=(say(0, 4, Visibility.AGGREGATE),), group=GROUP),
        turn(keep=2, messages=(say(2, 4, Visibility.AGGREGATE),), group=OTHER),
    ],
    "a group's messages after nobody's": [
        BEGIN, turn(messages=(say(0, 4, Visibility.AGGREGATE),)),
        turn(keep=2, messages=(say(2, 4, Visibility.AGGREGATE),), group=GROUP),
    ],
    "an origin after a turn": [BEGIN, turn(), Origin("talk", 1)],
    "two origins": [BEGIN, Origin("talk", 1), Origin("talk", 1)],
    "two begins": [BEGIN, BEGIN],
    "no begin": [turn()],
    "a name that cannot be": [replace(BEGIN, name="../talk")],
    "an origin's name that cannot be": [BEGIN, Origin("a/b", 1)],
    "a long model": [replace(BEGIN, model="m" * 1025)],
    "a long role": [BEGIN, turn(messages=(replace(say(0, 4), role="r" * 1025),))],
    "a long text": [BEGIN, turn(messages=(replace(say(0, 4), content="x" * (960 * 1024 + 1)),))],
    "too many tokens": [BEGIN, turn(tokens=(0,) * (2**20 + 1))],
    "too many messages": [BEGIN, turn(messages=(say(0, 0),) * (2**14 + 1))],
}  # fmt: skip


@pytest.mark.parametrize("why", WRONG)
def test_records_against_the_rules(why: str) -> None:
    data, _ = begin_file(WRONG[why])
    with pytest.raises(MalformedParticle):
        read_journal(data)


def test_the_most_that_may_be() -> None:
    records: list[Record] = [BEGIN, turn(tokens=(0,) * 2**20, messages=(say(0, 0),) * 2**14)]
    head = read_journal(begin_file(records)[0]).replay.head
    assert (head.num_tokens, head.num_messages) == (2**20, 2**14)
    with pytest.raises(MalformedParticle, match="limits"):
        head.extended(turn(keep=2**20))
    text = replace(say(0, 4), content="x" * (960 * 1024))
    replay = Replay(BEGIN)
    for _ in range(17):
        replay.apply(turn(keep=replay.head.num_tokens, messages=(_moved(text, replay),)))
    one_more = turn(keep=replay.head.num_tokens, messages=(_moved(text, replay),))
    with pytest.raises(MalformedParticle, match="limits"):
        replay.apply(one_more)


def _moved(message: Message, replay: Replay) -> Message:
    at = replay.head.num_tokens
    return replace(message, start=at, end=at + 4)


def test_a_conversation_ends_at_its_65_536th_turn() -> None:
    head = replace(Replay(BEGIN).head, num_turns=2**16 - 1)
    assert head.extended(turn()).num_turns == 2**16
    with pytest.raises(MalformedParticle, match="limits"):
        head.extended(turn()).extended(turn(keep=4))


def test_a_turn_goes_on_from_what_it_keeps_and_from_nothing_else() -> None:
    head = Replay(BEGIN).head.extended(turn())
    for keep in (0, 3, 5):
        with pytest.raises(MalformedParticle, match="follow"):
            head.extended(turn(keep=keep))
    assert head.extended(turn(keep=4)).num_tokens == 8


def test_a_cut_keeps_the_text_of_what_is_whole_alone() -> None:
    said = [replace(say(0, 2), content="ab"), replace(say(2, 4), content="cd")]
    for num, texts in ((4, ["ab", "cd"]), (3, ["ab", None]), (2, ["ab"]), (1, [None]), (0, [])):
        replay = Replay(BEGIN)
        replay.apply(turn(messages=tuple(said)))
        replay.cut(num)
        assert [message.content for message in replay.messages] == texts
        assert replay.head.text_bytes == sum(len(text or "") for text in texts)
        assert (replay.head.num_tokens, len(replay.tokens)) == (num, 4 * num)
        assert replay.head.num_messages == len(texts)


def test_a_tip_that_stays_is_one() -> None:
    tips = [WindowId(bytes([n]) * 32) for n in (1, 1, 2, 1)]
    replay = Replay(BEGIN)
    for number, tip in enumerate([*tips, None]):
        replay.apply(turn(keep=4 * number, tip=tip))
    assert replay.head.tips == (tips[0], tips[2], tips[3])
    assert replay.head.tip is None


PATCHES: list[tuple[str, Callable[[bytearray], object]]] = [
    ("has_tip", lambda b: b.__setitem__(20, 2)),
    ("zero", lambda b: b.__setitem__(21, 1)),
    ("zeros", lambda b: b.__setitem__(23, 1)),
    ("a tip that is none", lambda b: b.__setitem__(20, 0)),
    ("more tokens", lambda b: b.__setitem__(12, 255)),
    ("fewer tokens", lambda b: b.__setitem__(12, 1)),
    ("more messages", lambda b: b.__setitem__(16, 4)),
    ("fewer messages", lambda b: b.__setitem__(16, 2)),
    ("a byte more", lambda b: b.append(0)),
    ("a byte less", lambda b: b.pop()),
    ("a label of 0", lambda b: b.__setitem__(56 + 4 * 24 + 8, 0)),
    ("a label of 4", lambda b: b.__setitem__(56 + 4 * 24 + 8, 4)),
    ("has_text", lambda b: b.__setitem__(56 + 4 * 24 + 9, 2)),
    ("has_sampling", lambda b: b.__setitem__(56 + 4 * 24 + 10, 2)),
    ("sampling that is not there", lambda b: b.__setitem__(56 + 4 * 24 + 10, 1)),
    ("message's zero", lambda b: b.__setitem__(56 + 4 * 24 + 11, 1)),
    ("no temperature", lambda b: b.__setitem__(slice(-39, -31), struct.pack("<d", math.nan))),
    ("a temperature below 0", lambda b: b.__setitem__(-32, 0xBF)),
    ("another 0", lambda b: b.__setitem__(slice(-39, -31), struct.pack("<d", -0.0))),
    ("a hot one", lambda b: b.__setitem__(slice(-39, -31), struct.pack("<d", 100.5))),
    ("a top_p of 0", lambda b: b.__setitem__(slice(-31, -23), bytes(8))),
    ("a top_p above 1", lambda b: b.__setitem__(slice(-31, -23), struct.pack("<d", 1.5))),
    ("a top_k too large", lambda b: b.__setitem__(-21, 0x11)),
    ("a seed too large", lambda b: b.__setitem__(-12, 0x80)),
    ("not UTF-8", lambda b: b.__setitem__(56 + 4 * 24 + 14, 0xFF)),
]


@pytest.mark.parametrize(("why", "patch"), PATCHES, ids=[why for why, _ in PATCHES])
def test_a_turn_is_read_strictly(why: str, patch: Callable[[bytearray], object]) -> None:
    begin, (kind, body), *_ = bodies("talk")
    changed = bytearray(body)
    patch(changed)
    assert changed != body
    with pytest.raises(MalformedParticle):
        read_journal(framed(begin, (kind, bytes(changed))))
    with pytest.raises(ValueError, match=r"\w"):
        conversation_reference.read(framed(begin, (kind, bytes(changed))))


def test_kinds_that_are_none_and_texts_that_are_too_long_for_their_body() -> None:
    begin, *_ = bodies("talk")
    for wrong in ((0, b""), (4, b""), (2, b"\0\0\0\0\xff\xff"), (2, b"\0")):
        with pytest.raises(MalformedParticle):
            read_journal(framed(begin, wrong))


def test_a_length_past_the_file_reads_nothing_of_it() -> None:
    data = vector("talk")
    for length in (2**32 - 1, 32 * 2**20 + 1, 1):
        wrong = data + struct.pack("<IHH", length, 3, 0) + bytes(16)
        assert read_journal(wrong).size_bytes == len(data)


def test_appending_is_what_writing_at_once_is() -> None:
    data, check = begin_file(FILES["talk"][:1])
    for record in FILES["talk"][1:]:
        more, check = encode_record(record, check)
        data += more
    assert (data, check) == begin_file(FILES["talk"])


def test_two_conversations_are_told_apart_by_every_field() -> None:
    variants = [
        replace(BEGIN, created_us=BEGIN.created_us + 1),
        replace(BEGIN, name="talk2"),
        replace(BEGIN, model="smollm"),
        replace(BEGIN, dtype="float32"),
        replace(BEGIN, model_id=ModelId(bytes(32))),
    ]
    for variant in variants:
        assert read_journal(begin_file([variant])[0]).replay.head.begin == variant
    assert len({begin_file([v])[0] for v in [BEGIN, *variants]}) == 6
    turns = [
        turn(used_us=2), turn(tokens=(1, 2, 3, 5)), turn(tip=WindowId(bytes(32))), turn(),
        turn(messages=(say(0, 4),)), turn(messages=(replace(say(0, 4), content=""),)),
        turn(messages=(replace(say(0, 4), role=""),)), turn(messages=(say(0, 3),)),
        turn(messages=(say(1, 4),)), turn(messages=(say(0, 4, Visibility.PUBLIC),)),
    ]  # fmt: skip
    assert len({begin_file([BEGIN, t])[0] for t in turns}) == len(turns)
