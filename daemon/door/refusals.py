"""What is answered instead of what was asked: a status, and an error in OpenAI's form."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from glia.errors import (
    BadField,
    Cancelled,
    CapacityError,
    ConversationBusy,
    EngineDied,
    GliaError,
    LocalProtocolError,
    ManifestError,
    ModelError,
    NotRunning,
    QuotaExceeded,
    UnknownConversation,
    UnknownModel,
    UserError,
)

RETRY_AFTER_S = 1

# the first class that an error is of: its status, and the code that OpenAI has for it, if any
_STATUS: tuple[tuple[type[GliaError], int, str | None], ...] = (
    (UnknownModel, 404, "model_not_found"),
    (UnknownConversation, 404, "conversation_not_found"),
    (LocalProtocolError, 413, "body_too_large"),
    (QuotaExceeded, 429, "rate_limit_exceeded"),
    (ConversationBusy, 429, "conversation_busy"),
    (CapacityError, 503, None),
    (EngineDied, 503, None),
    (Cancelled, 503, None),
    (NotRunning, 503, None),
    (ManifestError, 500, None),
    (ModelError, 500, None),
    (UserError, 400, None),
)


@dataclass(frozen=True)
class Refusal:
    """An answer that is an error.

    Attributes:
        code: what clients tell errors apart by.
        param: the field of the request that it is about.
        can_retry: whether asking the same again, later, can help.
    """

    status: int
    code: str
    message: str
    param: str | None = None
    can_retry: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """Those that clients heed before they try again."""
        if not self.can_retry:
            return {"x-should-retry": "false"}
        return {"retry-after": str(RETRY_AFTER_S)} if self.status in (429, 503) else {}

    @property
    def body(self) -> bytes:
        """As OpenAI's API writes it, JSON."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})


INTERNAL = Refusal(500, "internal", "something went wrong in the door; gliad.log says where")


def refusal_of(error: GliaError) -> Refusal:
    """What an error of ours is to an HTTP client; of one that blames us it says no more than so."""
    if isinstance(error, BadField):
        return Refusal(400, error.reason, error.message, error.field)
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            hint = f" (hint: {error.hint})" if error.hint and status != 400 else ""
            said = f"{error.message}{hint}"
            return Refusal(status, code or error.code, said, can_retry=status in (429, 503))
    return INTERNAL
