"""p2p/spec/bulk.md: its vectors, and a client made of the page and the standard library."""

from __future__ import annotations

import json
import re
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import blake3
import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from glia.errors import PeerLost, RemoteProtocolError
from p2p.bulk.messages import (
    BULK,
    Agreement,
    BulkRefused,
    BulkTicket,
    OpenBulk,
    decode_answer,
    decode_open,
)
from p2p.bulk.tls import Identity, Tunnel
from p2p.host import PeerId, Stream
from p2p.messages import encode
from tests.architecture import ROOT
from tests.bulk_parts import ECHO, LOOPBACK, Pair, run

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
        client_certificate=bytes.fromhex(given["client_certificate"]),
        server_certificate=bytes.fromhex(given["server_certificate"]),
        ticket=bytes.fromhex(given["ticket"]),
    )


def test_messages() -> None:
    agreed = agreement()
    question = OpenBulk(agreed.protocol, agreed.client_certificate)
    ticket = BulkTicket(VECTORS["port"], agreed.ticket, agreed.server_certificate)
    for message, name in ((question, "open"), (ticket, "ticket"), (BulkRefused(), "refused")):
        assert encode(message).hex() == VECTORS[name]
    assert decode_open(bytes.fromhex(VECTORS["open"])) == question
    assert decode_answer(bytes.fromhex(VECTORS["ticket"])) == ticket
    assert decode_answer(bytes.fromhex(VECTORS["refused"])) == BulkRefused()


def by_the_page(role: str, fields: list[bytes]) -> bytes:
    framed = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
    return blake3.blake3(framed, derive_key_context="glia bulk 1 " + role).digest()


@pytest.mark.parametrize("role", ["client", "server"])
def test_bindings(role: str) -> None:
    given = VECTORS["agreement"]
    fields = [given[name].encode() for name in ("protocol", "client", "server")]
    fields += [
        bytes.fromhex(given[name])
        for name in ("client_certificate", "server_certificate", "ticket")
    ]
    assert agreement().binding(role).hex() == VECTORS[role]  # type: ignore[arg-type]
    assert by_the_page(role, fields).hex() == VECTORS[role]


def test_every_part_of_an_agreement_is_bound() -> None:
    agreed = agreement()
    seen = {agreed.binding("client"), agreed.binding("server")}
    changed = [
        Agreement(**{**{f: getattr(agreed, f) for f in agreed.__slots__}, name: value})
        for name, value in {
            "protocol": "/x",
            "client": agreed.server,
            "server": agreed.client,
            "client_certificate": b"x",
            "server_certificate": b"x",
            "ticket": bytes(32),
        }.items()
    ]
    seen.update(each.binding("client") for each in changed)
    assert len(seen) == 8


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xc0",
        bytes.fromhex(VECTORS["refused"]),
        bytes.fromhex(VECTORS["open"])[:-1],
        bytes.fromhex(VECTORS["open"]) + b"x",
        encode(OpenBulk("", b"x")),
        encode(OpenBulk("x" * 65, b"x")),
        encode(OpenBulk("x", b"")),
        encode(OpenBulk("x", bytes(1025))),
        b"\x93" * 10_000,
    ],
)
def test_questions_that_are_none(message: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_open(message)


@pytest.mark.parametrize(
    "answer",
    [
        BulkTicket(0, bytes(32), b"x"),
        BulkTicket(65_536, bytes(32), b"x"),
        BulkTicket(1, bytes(31), b"x"),
        BulkTicket(1, bytes(33), b"x"),
        BulkTicket(1, bytes(32), bytes(1025)),
        OpenBulk("x", b"x"),
    ],
)
def test_answers_that_are_none(answer: BulkTicket | OpenBulk) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_answer(encode(answer))


@pytest.mark.parametrize("certificate", [b"x", bytes(1024), Identity.new().certificate[:-1]])
def test_certificates_that_are_none(certificate: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        Tunnel(Identity.new(), certificate, is_server=True)


def foreign_certificate(pem: Path) -> bytes:
    """Not as ours are: P-256, an authority, good for a day. Written with its key; returns DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "foreign")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(7)
        .public_key(key.public_key())
        .not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem.write_bytes(made.public_bytes(Encoding.PEM) + secret)
    return made.public_bytes(Encoding.DER)


def shaken(client: Tunnel, server: Tunnel) -> bool:
    """Whether both sides are content. Raises: PeerLost."""
    done = [False, False]
    for _ in range(4):
        for at, (one, other) in enumerate(((client, server), (server, client))):
            done[at] = done[at] or one.handshake()
            if said := one.encrypt(memoryview(b"")):
                other.feed(memoryview(said))
    return all(done)


@pytest.mark.parametrize("more", [b"x", Identity.new().certificate])
def test_what_was_told_is_what_is_shown_byte_for_byte(more: bytes) -> None:
    """OpenSSL trusts either certificate of two, and reads over what follows one."""
    one, other = Identity.new(), Identity.new()
    client = Tunnel(one, other.certificate, is_server=False)
    assert shaken(client, Tunnel(other, one.certificate, is_server=True))
    client = Tunnel(one, other.certificate, is_server=False)
    with pytest.raises(PeerLost, match="another certificate"):
        shaken(client, Tunnel(other, one.certificate + more, is_server=True))
    client = Tunnel(one, other.certificate + more, is_server=False)
    with pytest.raises(PeerLost, match="another certificate"):
        shaken(client, Tunnel(other, one.certificate, is_server=True))


def test_an_older_version_is_not_even_begun() -> None:
    told = Identity.new()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    to_it, from_it = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_it, from_it)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    server = Tunnel(Identity.new(), told.certificate, is_server=True)
    server.feed(memoryview(from_it.read()))
    with pytest.raises(PeerLost, match="UNSUPPORTED_PROTOCOL"):
        server.handshake()


def foreign_client(
    port: int, ticket: bytes, theirs: bytes, say: bytes, expected: bytes, pem: Path
) -> bytes:
    """The TCP half of the page, blocking. Returns: what "hello" is answered with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(pem)
    context.load_verify_locations(cadata=theirs)
    with socket.create_connection((LOOPBACK, port), timeout=10) as plain:
        plain.sendall(ticket)
        with context.wrap_socket(plain) as secure:
            assert secure.getpeercert(binary_form=True) == theirs
            secure.sendall(say)
            assert secure.recv(32) == expected
            secure.sendall(b"hello")
            return secure.recv(100)


def test_a_client_made_of_the_page(tmp_path: Path) -> None:
    pem, ours = tmp_path / "client.pem", foreign_certificate(tmp_path / "client.pem")

    async def main(both: Pair) -> None:
        control: Stream = await both.a.open(both.b.peer_id, BULK)
        question = (
            b"\x93\xa8OpenBulk" + bytes([0xA0 + len(ECHO)]) + ECHO.encode()
            + b"\xc5" + len(ours).to_bytes(2, "big") + ours
        )  # fmt: skip
        await control.send_all(len(question).to_bytes(4, "big") + question)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            answer += await control.receive_some(1000)
        assert answer[4:16] == b"\x94\xaaBulkTicket"
        assert answer[16] == 0xCD
        port = int.from_bytes(answer[17:19], "big")
        assert answer[19:21] == b"\xc4\x20"
        ticket = answer[21:53]
        theirs = answer[55:] if answer[53] == 0xC4 else answer[56:]
        fields = [ECHO.encode(), both.a.peer_id.encode(), both.b.peer_id.encode()]
        fields += [ours, theirs, ticket]
        say, expected = by_the_page("client", fields), by_the_page("server", fields)
        said = await trio.to_thread.run_sync(
            foreign_client, port, ticket, theirs, say, expected, pem
        )
        assert said == b"hello"

    run(main)
