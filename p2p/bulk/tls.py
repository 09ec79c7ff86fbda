"""TLS 1.3 between two certificates that were told to each other, without any I/O.

OpenSSL does it all. No other version, no resumption, no early data, no names, no authority:
each side trusts one certificate, the other's, and after the handshake that very one was
shown, byte for byte.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from glia.errors import PeerLost, RemoteProtocolError

_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "glia bulk")])
# It is told over an authenticated stream and used at once, so clocks have no say.
_BEGINS, _ENDS = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


@dataclass(frozen=True)
class Identity:
    """A key that lives as long as the process, and its self-signed certificate.

    Attributes:
        certificate: X.509, DER.
    """

    certificate: bytes
    _pem: bytes = field(repr=False)

    @classmethod
    def new(cls) -> Identity:
        """Ed25519, never on disk."""
        key = Ed25519PrivateKey.generate()
        made = (
            x509.CertificateBuilder()
            .subject_name(_NAME)
            .issuer_name(_NAME)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_BEGINS)
            .not_valid_after(_ENDS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(key, None)
        )
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return cls(made.public_bytes(Encoding.DER), made.public_bytes(Encoding.PEM) + secret)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Show this certificate. `ssl` reads files only; this one is memory."""
        fd = os.memfd_create("glia-bulk", os.MFD_CLOEXEC)
        try:
            os.write(fd, self._pem)
            context.load_cert_chain(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)


class Tunnel:
    """One side of one TLS connection: bytes of the wire in and out, bytes of the stream out and in.

    Not to be used by two threads at once. After an error it is of no more use.
    """

    def __init__(self, identity: Identity, peer_certificate: bytes, *, is_server: bool) -> None:
        """Raises: RemoteProtocolError for a certificate that is none."""
        self._peer_certificate = peer_certificate
        self._wire_in, self._wire_out = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = _context(identity, peer_certificate, is_server)
        self._tls = context.wrap_bio(self._wire_in, self._wire_out, server_side=is_server)

    def handshake(self) -> bool:
        """Go on with it. Returns: whether it is done, and the other side is who was told.

        A client is done before the server has judged its certificate.
        Raises: PeerLost.
        """
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise PeerLost(f"the TLS handshake failed: {error.reason}") from error
        if self._tls.getpeercert(binary_form=True) != self._peer_certificate:
            raise PeerLost("another certificate was shown than the one that was told")
        if self._tls.version() != "TLSv1.3":
            raise PeerLost("another version of TLS was agreed on")
        return True

    def feed(self, data: memoryview) -> None:
        """Bytes came from the wire."""
        self._wire_in.write(data)

    def feed_end(self) -> None:
        """The wire has ended."""
        self._wire_in.write_eof()

    def encrypt(self, data: memoryview) -> bytes:
        """What is to go to the wire: these bytes, and before them what was still to be said.

        Raises: PeerLost.
        """
        try:
            at = 0
            while at < len(data):
                at += self._tls.write(data[at:])
        except ssl.SSLError as error:
            raise PeerLost(f"TLS failed: {error.reason}") from error
        return self._wire_out.read()

    def decrypt(self, into: memoryview) -> int | None:
        """Fill `into` from what was fed.

        Returns: the number of bytes; 0 where more has to be fed; None where the other side
            has finished.
        Raises: PeerLost, also where the wire ended and the other side had not finished.
        """
        at = 0
        try:
            while at < len(into):
                num = cast("int", self._tls.read(len(into) - at, into[at:]))
                if not num:
                    return at or None
                at += num
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            return at or None
        except ssl.SSLError as error:
            if not at:
                raise PeerLost(f"TLS failed: {error.reason}") from error
        return at

    def finish(self) -> bytes:
        """Say that no more will come; reading goes on. Returns: what is to go to the wire.

        Whatever was fed must have been decrypted. Raises: PeerLost.
        """
        try:
            self._tls.unwrap()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise PeerLost(f"TLS failed: {error.reason}") from error
        return self._wire_out.read()


def _context(identity: Identity, peer_certificate: bytes, is_server: bool) -> ssl.SSLContext:
    protocol = ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if is_server:
        context.num_tickets = 0
    identity.load_into(context)
    try:
        context.load_verify_locations(cadata=peer_certificate)
    except (ssl.SSLError, ValueError) as error:
        raise RemoteProtocolError("a certificate cannot be read") from error
    return context
