"""Cards and grants, as they are handed to verbs: their text, a file with it, or stdin."""

from __future__ import annotations

import sys
from pathlib import Path

from glia.errors import BadRequest
from glia.graph.grant import CARD_TEXT, GRANT_TEXT
from glia.local.messages.groups import MAX_GRANT_TEXT, MAX_WHO_TEXT

_MAX_FILE_BYTES = 128 * 1024
_WHENCE = "`group card` prints a card, on the node that joins; `grant CARD` a grant, on the other"


def handed(said: str, kind: str) -> str:
    """Of a card or a grant: itself, what is in a file, or on stdin; what names somebody, as it is.

    Raises: BadRequest (the other of the two; a file without one, or that is not there).
    """
    text = said.strip()
    if not text.startswith((CARD_TEXT, GRANT_TEXT)):
        if not _is_path(said):
            return _fitting(said, kind)
        text = _content(said)
    if text.startswith(kind):
        return _fitting(text, kind)
    other = "a card" if text.startswith(CARD_TEXT) else "a grant"
    if text.startswith((CARD_TEXT, GRANT_TEXT)):
        raise BadRequest(f"that is {other}, not a {kind[5:-1]}", hint=_WHENCE)
    raise BadRequest(f"{said[:80]}: neither a card nor a grant", hint=_WHENCE)


def _fitting(text: str, kind: str) -> str:
    """What gliad would refuse by its length alone is refused here, in words."""
    if not text.strip():
        raise BadRequest("nobody is named by an empty text", hint=_WHENCE)
    if len(text) > (MAX_WHO_TEXT if kind == CARD_TEXT else MAX_GRANT_TEXT):
        raise BadRequest(f"{text[:80]}...: too long for what it is to be", hint=_WHENCE)
    return text


def _is_path(said: str) -> bool:
    if said.startswith(("/ip4/", "/ip6/", "/dns")):  # a peer's address
        return False
    if said == "-" or "/" in said:
        return True
    try:
        return Path(said).is_file()
    except (OSError, ValueError):  # longer than a name can be; with a NUL
        return False


def _content(said: str) -> str:
    try:
        if said == "-":
            return sys.stdin.read(_MAX_FILE_BYTES).strip()
        with Path(said).open(encoding="utf-8") as file:
            return file.read(_MAX_FILE_BYTES).strip()
    except OSError as error:
        raise BadRequest(f"{said[:80]}: {error.strerror}", hint=_WHENCE) from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{said[:80]}: neither a card nor a grant", hint=_WHENCE) from error
