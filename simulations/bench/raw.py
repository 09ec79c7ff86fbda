"""The other side where bytes are fetched: trio's TCP alone, and TLS over it.

Batches, asked for one after the other, sent from one buffer, cut into blocks where they arrive.
"""

from __future__ import annotations

import datetime
import math
import ssl
import tempfile
import time
from pathlib import Path

import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOOPBACK = "127.0.0.1"
_BLOCK_BYTES = 64 * 1024
_BATCH_BYTES = 256 * _BLOCK_BYTES
_READ_BYTES = 256 * 1024


async def serve(nursery: trio.Nursery) -> tuple[int, int]:
    """Returns: the ports of TCP alone and of TLS."""
    (plain,) = await trio.open_tcp_listeners(0, host=LOOPBACK)
    (below,) = await trio.open_tcp_listeners(0, host=LOOPBACK)
    secure = trio.SSLListener(below, _server_context())
    nursery.start_soon(trio.serve_listeners, _give, [plain])
    nursery.start_soon(trio.serve_listeners, _give, [secure])
    return plain.socket.getsockname()[1], below.socket.getsockname()[1]


async def read_s(port: int, num_bytes: int, *, is_secure: bool) -> float:
    """Seconds for that many bytes, once connected."""
    num_batches = math.ceil(num_bytes / _BATCH_BYTES)
    stream: trio.abc.Stream = await trio.open_tcp_stream(LOOPBACK, port)
    if is_secure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        stream = trio.SSLStream(stream, context)
        await stream.do_handshake()
    async with stream:
        began_s = time.perf_counter()
        for _ in range(num_batches):
            await stream.send_all(b"x")
            await _read_batch(stream)
        took_s = time.perf_counter() - began_s
    return took_s * num_bytes / (num_batches * _BATCH_BYTES)


async def _give(stream: trio.abc.Stream) -> None:
    """A batch of bytes for every byte that comes."""
    batch = bytes(_BATCH_BYTES)
    while asked := await stream.receive_some(_READ_BYTES):
        for _ in asked:
            await stream.send_all(batch)


async def _read_batch(stream: trio.abc.Stream) -> list[bytes]:
    blocks, buffer = list[bytes](), bytearray()
    while len(blocks) * _BLOCK_BYTES < _BATCH_BYTES:
        buffer += await stream.receive_some(_READ_BYTES)
        whole = len(buffer) // _BLOCK_BYTES * _BLOCK_BYTES
        blocks += [bytes(buffer[at : at + _BLOCK_BYTES]) for at in range(0, whole, _BLOCK_BYTES)]
        del buffer[:whole]
    return blocks


def _server_context() -> ssl.SSLContext:
    """TLS 1.3 with a certificate of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with tempfile.TemporaryDirectory(prefix="gliad-bench-tls-") as directory:
        path = Path(directory) / "both.pem"
        path.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context.load_cert_chain(path)
    return context
