"""Who may ask, decided from a request's head alone.

A web page that the user looks at must not reach the door: its browser names a foreign host
(a name that was made to point at loopback) or a foreign origin. Everybody else on this
machine may connect, and is told apart by the key.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from daemon.door.refusals import Refusal

OPEN_PATHS = frozenset(("/health",))

Headers = Iterable[tuple[bytes, bytes]]  # names in lower case

_FOREIGN_HOST = Refusal(403, "forbidden_host", "only loopback names are served here")
_FOREIGN_ORIGIN = Refusal(403, "forbidden_origin", "web pages of other sites are not served")
_NO_KEY = Refusal(
    401, "invalid_api_key", "send the key in http.key of the data dir: Authorization: Bearer KEY"
)


@dataclass(frozen=True)
class Guard:
    """Args:
    key: what requests must carry, "" where nothing.
    """

    key: str

    def refuse(self, path: str, headers: Headers) -> Refusal | None:
        """Why a request is not served, None where it is."""
        found = dict(headers)
        if not _is_loopback(f"//{_text(found.get(b'host'))}"):
            return _FOREIGN_HOST
        origin = found.get(b"origin")
        if origin is not None and not _is_loopback(_text(origin)):
            return _FOREIGN_ORIGIN
        if self.key and path not in OPEN_PATHS and not self._has_key(found):
            return _NO_KEY
        return None

    def _has_key(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        is_same = hmac.compare_digest(given.strip(), self.key.encode())
        return is_same and scheme.lower() == b"bearer"


def _text(value: bytes | None) -> str:
    return (value or b"").decode("latin-1")


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
