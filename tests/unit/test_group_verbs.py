"""gliad group, grant and revoke against a gliad that says what it is told to."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct

from glia.errors import BadRequest, NotPermitted
from glia.graph.scope import Op
from glia.local import messages as m
from glia.local.group_values import GroupValue, MemberValue
from tests.cli_parts import MODEL_ID, World, say, sent
from tests.fake_gliad import FakeGliad

NOW_S = 1_800_000_000
CARD, GRANT = "glia-card:AAAA", "glia-grant:BBBB"
MEMBER = MemberValue(["fetch"], NOW_S - 90, "ab" * 32, "12D3KooWxyzxyzxyzxyz", "", NOW_S + 7300)
GROUP = GroupValue(
    bytes(range(32)), "friends", "issuer", 3, 2, NOW_S - 7300, ["fetch", "announce", "delegate"],
    NOW_S - 60, 4, num_members=2, members=[MEMBER, MemberValue(["fetch", "delegate"], NOW_S)],
)  # fmt: skip
JOINED = GroupValue(
    bytes(32), "theirs", "member", 1, 1, NOW_S, ["fetch"], NOW_S, 0, NOW_S + 1900,
    ["/ip4/192.0.2.1/tcp/1/p2p/x"],
)  # fmt: skip


@pytest.fixture(autouse=True)
def groups(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.verbs.groups.time", SimpleNamespace(time=lambda: NOW_S))
    told = world.answer

    def answer(call: m.Call) -> Iterable[Struct]:
        match call:
            case m.Groups():
                return [m.GroupsReply(call.id, [GROUP, JOINED])]
            case m.ShowGroup(group="theirs"):
                return [m.GroupsReply(call.id, [JOINED])]
            case m.ShowGroup() | m.CreateGroup() | m.RotateGroup() | m.Revoke():
                return [m.GroupsReply(call.id, [GROUP])]
            case m.JoinGroup():
                return [m.GroupsReply(call.id, [] if call.source == "nobody" else [JOINED])]
            case m.LeaveGroup():
                return [m.LeftReply(call.id, 3, 4096)]
            case m.Card():
                return [m.CardReply(call.id, CARD)]
            case m.Grant():
                text = GRANT if call.who.startswith("glia-card:") else ""
                return [m.GrantReply(call.id, MEMBER, text)]
        return told(call)

    world.answer = answer  # type: ignore[method-assign]


def test_groups_are_listed(gliad: FakeGliad, capfd: Any) -> None:
    for words in (("group",), ("group", "list")):
        head, mine, theirs = say(capfd, *words).out.splitlines()
        assert head.split() == ["GROUP", "ID", "ROLE", "EPOCH", "MEMBERS", "MAY", "UNTIL"]
        assert mine.split() == [
            "friends", "000102030405", "issuer", "3", "2", "fetch,announce,delegate",
        ]  # fmt: skip
        assert theirs.split() == ["theirs", "0" * 12, "member", "1", "fetch", "in", "31", "min"]
        (found, _) = say(capfd, *words, "--json").json
        assert (found["group"], found["epochs"]) == (GROUP.group.hex(), 2)


def test_a_group_is_shown(gliad: FakeGliad, capfd: Any) -> None:
    said = say(capfd, "group", "show", "friends")
    assert sent(gliad, m.ShowGroup).group == "friends"
    assert "epoch    3, from 2 h ago; 2 known" in said.out
    assert "revoked  4, as of 1 min ago" in said.out
    *_, one, other = said.out.splitlines()
    shown = ["ab" * 6, f"…{MEMBER.peer[-10:]}", "fetch", "any"]
    assert one.split() == [*shown, "1", "min", "ago", "in", "2", "h"]
    assert other.split()[:3] == ["unknown", "unknown", "fetch,delegate"]
    assert other.endswith("it is revoked")  # until then: it was not
    assert say(capfd, "group", "show", "friends", "--json").json["members"][0]["peer"]


@pytest.mark.parametrize(
    ("words", "call", "told"),
    [
        (("create", "friends"), m.CreateGroup, "group friends is made: gliad grant"),
        (("rotate", "friends"), m.RotateGroup, "is in epoch 3"),
        (("leave", "theirs"), m.LeaveGroup, "is left"),
        (("leave", "friends", "--for-good"), m.LeaveGroup, "is left"),
        (("join", GRANT), m.JoinGroup, "in group theirs, and may fetch there"),
    ],
)
def test_changes(gliad: FakeGliad, capfd: Any, words: Any, call: type[Any], told: str) -> None:
    said = say(capfd, "group", *words)
    assert (said.code, said.out) == (0, "")
    assert told in said.err
    assert sent(gliad, call)
    if words[0] != "leave":
        assert say(capfd, "group", *words, "--json").json


def test_a_group_that_was_made_here_is_not_left_by_mistake(gliad: FakeGliad, capfd: Any) -> None:
    said = say(capfd, "group", "leave", "friends")
    assert said.code == BadRequest.exit_code
    assert "its key is nowhere else" in said.err
    assert said.err.splitlines()[-1].strip().endswith("gliad group leave friends --for-good")
    assert not any(isinstance(call, m.LeaveGroup) for call in gliad.calls)


def test_a_card_is_data(gliad: FakeGliad, capfd: Any) -> None:
    said = say(capfd, "group", "card")
    assert (said.out, said.err) == (f"{CARD}\n", "")
    assert say(capfd, "group", "card", "--json").json == {"card": CARD}


def test_who_grants_nothing(gliad: FakeGliad, capfd: Any) -> None:
    said = say(capfd, "group", "join", "nobody")
    assert (said.code, said.out) == (NotPermitted.exit_code, "")
    assert "gliad group card" in said.hint


def test_what_is_granted(gliad: FakeGliad, capfd: Any) -> None:
    said = say(capfd, "grant", "ab" * 32, "--group", "friends")
    assert said.out == ""
    assert "granted fetch" in said.err
    call = sent(gliad, m.Grant)
    assert (call.group, call.who, call.ops) == ("friends", "ab" * 32, 1)
    assert call.bytes_per_hour is None
    say(capfd, "grant", "ab" * 32, "--group", "friends", "--hourly", "1.5GiB")
    assert gliad.calls[-1].bytes_per_hour == 3 * 2**29  # type: ignore[attr-defined]
    for wrong in ("1", "0B", "much"):
        with pytest.raises(SystemExit):
            say(capfd, "grant", "ab" * 32, "--group", "friends", "--hourly", wrong)
        assert "not a size" in capfd.readouterr().err
    assert (call.model_id, call.expires_s) == (None, None)
    words = ("--model", "tiny", "--ops", "fetch,delegate", "--expires", "30m", "--json")
    found = say(capfd, "grant", "x", "--group", "f", *words).json
    call = sent(gliad, m.Grant)
    assert (call.model_id, call.ops, call.expires_s) == (MODEL_ID, 5, 1800)
    assert (found["grant"], found["member"]["neuron"]) == (None, "ab" * 32)
    say(capfd, "grant", "x", "--group", "f", "--ops", "relay")
    assert gliad.calls[-1].ops == Op.FETCH | Op.RELAY  # type: ignore[attr-defined]


def test_cards_and_grants_come_as_text_files_or_on_stdin(
    gliad: FakeGliad, capfd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.card"
    path.write_text(f"\n{CARD}\n")
    for source in (CARD, str(path), "-"):
        monkeypatch.setattr("sys.stdin", io.StringIO(CARD + "\n"))
        said = say(capfd, "grant", source, "--group", "friends")
        assert said.out == f"{GRANT}\n"
        assert "handed over" in said.err
        assert sent(gliad, m.Grant).who == CARD
        monkeypatch.setattr("sys.stdin", io.StringIO(CARD))
        assert say(capfd, "revoke", source, "--group", "friends").code == 0
        assert sent(gliad, m.Revoke).who == CARD


def test_what_is_neither_a_card_nor_a_grant_is_told_without_it(
    gliad: FakeGliad, capfd: Any, tmp_path: Path
) -> None:
    path, absent = tmp_path / "a.text", tmp_path / "absent"
    path.write_text("a secret of mine " * 99)
    for words, told in (
        (("group", "join", str(path)), "neither a card nor a grant"),
        (("grant", str(path), "--group", "friends"), "neither a card nor a grant"),
        (("group", "join", str(absent)), "No such file"),
        (("group", "join", CARD), "that is a card, not a grant"),
        (("grant", GRANT + "B" * 2000, "--group", "friends"), "that is a grant, not a card"),
    ):
        said = say(capfd, *words)
        assert (said.code, said.out) == (BadRequest.exit_code, "")
        assert told in said.err
        assert "secret" not in said.err
        assert "`group card`" in said.hint
    path.write_bytes(b"\xff\xfe")
    assert say(capfd, "grant", str(path), "--group", "friends").code == BadRequest.exit_code
    address = "/ip4/192.0.2.1/tcp/1/p2p/x"
    assert say(capfd, "group", "join", address).code == 0
    assert sent(gliad, m.JoinGroup).source == address


@pytest.mark.parametrize("who", ["", " ", "x" * 1025, "x" * 300 + "\0" * 800, CARD + "A" * 1024])
def test_whoever_is_no_text_of_a_fitting_length(gliad: FakeGliad, capfd: Any, who: str) -> None:
    for verb in ("grant", "revoke"):
        said = say(capfd, verb, who, "--group", "friends")
        assert (said.code, said.out) == (BadRequest.exit_code, "")
        assert "`group card`" in said.hint
    # Longer than a file's name can be, and still a text that may name somebody.
    assert say(capfd, "grant", "x" * 1024, "--group", "friends").code == 0


def test_what_is_to_be_typed_next_can_be_typed(gliad: FakeGliad, capfd: Any) -> None:
    said = say(capfd, "group", "create", "my friends")
    assert said.err.endswith("--group 'my friends'\n")


def test_what_is_revoked(gliad: FakeGliad, capfd: Any) -> None:
    said = say(capfd, "revoke", "abab", "--group", "friends")
    assert (said.code, said.out) == (0, "")
    assert "in epoch 3" in said.err
    assert (sent(gliad, m.Revoke).who, sent(gliad, m.Revoke).group) == ("abab", "friends")
    assert say(capfd, "revoke", "abab", "--group", "friends", "--json").json["epoch"] == 3


@pytest.mark.parametrize(
    "words",
    [
        ("grant", "x"),
        ("grant", "x", "--group", "g", "--ops", "read"),
        ("grant", "x", "--group", "g", "--ops", ""),
        *[("grant", "x", "--group", "g", "--expires", t) for t in ("1", "h", "0h", "-1h", "1y")],
        ("revoke", "x"),
        ("group", "create"),
        ("group", "burn", "x"),
        *[("group", verb, "") for verb in ("create", "show", "leave", "rotate")],
        ("group", "create", "x" * 65),
        ("group", "create", "é" * 33),  # what a grant can hold
        ("grant", "x", "--group", "x" * 65),
        ("run", "m", "p", "--group", "x" * 65),
    ],
)
def test_what_cannot_be_said(words: tuple[str, ...], capfd: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        say(capfd, *words)
    assert ended.value.code == BadRequest.exit_code
    assert capfd.readouterr().err.splitlines()[-1].startswith("hint: gliad ")


def test_operations_by_their_words() -> None:
    assert m.Grant(0, "g", "w").ops == Op.FETCH
