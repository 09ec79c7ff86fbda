"""p2p/spec/bulk.md: its vectors, and a client made of the page alone."""

from __future__ import annotations

import json
import re
import secrets
import socket

import pytest
import trio

from glia.errors import RemoteProtocolError
from p2p.bulk.keys import Agreement, Ephemeral, derive
from p2p.bulk.messages import (
    BULK,
    BulkRefused,
    BulkTicket,
    OpenBulk,
    decode_answer,
    decode_open,
)
from p2p.bulk.records import MAX_PLAIN_BYTES, Opener, Sealer
from p2p.host import PeerId, Stream
from p2p.messages import encode
from tests.architecture import ROOT
from tests.bulk_parts import ECHO, LOOPBACK, Pair, run
from tests.bulk_reference import keys, seal, unseal, x25519

PAGE = (ROOT / "p2p/spec/bulk.md").read_text(encoding="utf-8")
VECTORS = json.loads((ROOT / "tests/vectors/bulk.json").read_text(encoding="utf-8"))
PARTS = ("Purpose", "Non-goals", "Layout", "Fields", "Limits", "Errors", "Threats", "Why not",
         "Example", "Vectors", "Changes")  # fmt: skip


def test_the_page_has_all_its_parts() -> None:
    assert tuple(re.findall(r"^## (.*)$", PAGE, re.MULTILINE)) == PARTS


def agreement() -> Agreement:
    given = VECTORS["agreement"]
    return Agreement(
        protocol=given["protocol"],
        client=PeerId(given["client"]),
        server=PeerId(given["server"]),
        client_share=bytes.fromhex(given["client_share"]),
        server_share=bytes.fromhex(given["server_share"]),
        ticket=bytes.fromhex(given["ticket"]),
    )


def test_messages() -> None:
    agreed = agreement()
    question = OpenBulk(agreed.protocol, agreed.client_share)
    ticket = BulkTicket(VECTORS["port"], agreed.ticket, agreed.server_share)
    for message, name in ((question, "open"), (ticket, "ticket"), (BulkRefused(), "refused")):
        assert encode(message).hex() == VECTORS[name]
    assert decode_open(bytes.fromhex(VECTORS["open"])) == question
    assert decode_answer(bytes.fromhex(VECTORS["ticket"])) == ticket
    assert decode_answer(bytes.fromhex(VECTORS["refused"])) == BulkRefused()


def fields() -> list[bytes]:
    given = VECTORS["agreement"]
    names = ("client_share", "server_share", "ticket")
    return [given[name].encode() for name in ("protocol", "client", "server")] + [
        bytes.fromhex(given[name]) for name in names
    ]


def test_keys() -> None:
    shared = bytes.fromhex(VECTORS["shared"])
    given = (VECTORS["key_of_client"], VECTORS["key_of_server"], VECTORS["shown"])
    ours = derive(shared, agreement())
    assert (ours.of_client.hex(), ours.of_server.hex(), ours.shown.hex()) == given
    assert tuple(each.hex() for each in keys(shared, fields())) == given
    client, server = (bytes.fromhex(VECTORS[f"{role}_secret"]) for role in ("client", "server"))
    base = (9).to_bytes(32, "little")
    assert [x25519(each, base) for each in (client, server)] == fields()[3:5]
    assert x25519(client, fields()[4]) == x25519(server, fields()[3]) == shared


def test_two_sides_have_the_same_keys() -> None:
    one, other = Ephemeral(), Ephemeral()
    assert one.share != other.share
    agreed = agreement()
    assert one.keys(other.share, agreed) == other.keys(one.share, agreed)
    with pytest.raises(RemoteProtocolError):
        one.keys(bytes(32), agreed)


def test_every_part_of_an_agreement_is_bound() -> None:
    agreed, shared = agreement(), bytes(range(32))
    changed = [
        Agreement(**{**{f: getattr(agreed, f) for f in agreed.__slots__}, name: value})
        for name, value in {
            "protocol": "/x",
            "client": agreed.server,
            "server": agreed.client,
            "client_share": b"x",
            "server_share": b"x",
            "ticket": bytes(32),
        }.items()
    ]
    made = [derive(shared, each) for each in (agreed, *changed)]
    assert len({key for each in made for key in (each.of_client, each.of_server, each.shown)}) == 21


def test_records() -> None:
    key = bytes.fromhex(VECTORS["key_of_client"])
    given = [tuple(map(bytes.fromhex, each)) for each in VECTORS["records_of_client"]]
    sealer, opener = Sealer(key), Opener(key)
    for number, (plain, record) in enumerate(given):
        assert bytes(sealer.seal(plain)) == seal(key, number, plain) == record
        assert unseal(key, number, record) == plain
        opener.room()[: len(record)] = record
        opener.came(len(record))
        assert opener.next() == plain
        assert opener.next() is None


def test_limits_are_the_pages() -> None:
    assert f"{MAX_PLAIN_BYTES:,} bytes" in PAGE
    assert "2^22 records" in PAGE


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xc0",
        bytes.fromhex(VECTORS["refused"]),
        bytes.fromhex(VECTORS["open"])[:-1],
        bytes.fromhex(VECTORS["open"]) + b"x",
        encode(OpenBulk("", bytes(32))),
        encode(OpenBulk("x" * 65, bytes(32))),
        encode(OpenBulk("x", bytes(31))),
        encode(OpenBulk("x", bytes(33))),
        b"\x93" * 10_000,
    ],
)
def test_questions_that_are_none(message: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_open(message)


@pytest.mark.parametrize(
    "answer",
    [
        BulkTicket(0, bytes(32), bytes(32)),
        BulkTicket(65_536, bytes(32), bytes(32)),
        BulkTicket(1, bytes(31), bytes(32)),
        BulkTicket(1, bytes(33), bytes(32)),
        BulkTicket(1, bytes(32), bytes(33)),
        OpenBulk("x", bytes(32)),
    ],
)
def test_answers_that_are_none(answer: BulkTicket | OpenBulk) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_answer(encode(answer))


def foreign_client(port: int, ours: bytes, theirs: bytes, shown: bytes) -> bytes:
    """The TCP half of the page, blocking. Returns: what "hello" is answered with."""
    with socket.create_connection((LOOPBACK, port), timeout=10) as sock:
        sock.sendall(shown + seal(ours, 0, b"") + seal(ours, 1, b"hello") + seal(ours, 2, b""))
        heard = b""
        while part := sock.recv(1000):
            heard += part
    plains = []
    while heard:
        size = 20 + int.from_bytes(heard[:4], "big")
        plains.append(unseal(theirs, len(plains), heard[:size]))
        heard = heard[size:]
    assert plains[0] == plains[-1] == b""
    assert all(plains[1:-1])
    return b"".join(plains)


def test_a_client_made_of_the_page() -> None:
    secret = secrets.token_bytes(32)
    share = x25519(secret, (9).to_bytes(32, "little"))

    async def main(both: Pair) -> None:
        control: Stream = await both.a.open(both.b.peer_id, BULK)
        question = (
            b"\x93\xa8OpenBulk" + bytes([0xA0 + len(ECHO)]) + ECHO.encode() + b"\xc4\x20" + share
        )
        await control.send_all(len(question).to_bytes(4, "big") + question)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            answer += await control.receive_some(1000)
        assert answer[4:16] == b"\x94\xaaBulkTicket"
        assert answer[16] == 0xCD
        port = int.from_bytes(answer[17:19], "big")
        assert answer[19:21] == answer[53:55] == b"\xc4\x20"
        ticket, their_share = answer[21:53], answer[55:]
        said = [ECHO.encode(), both.a.peer_id.encode(), both.b.peer_id.encode()]
        made = keys(x25519(secret, their_share), [*said, share, their_share, ticket])
        heard = await trio.to_thread.run_sync(foreign_client, port, *made)
        assert heard == b"hello"

    run(main)
