"""Every error of ours has a status and a form that OpenAI's client knows."""

from __future__ import annotations

import json

import pytest

from daemon.door.refusals import INTERNAL, Refusal, refusal_of
from glia.errors import (
    _BY_CODE,
    BadField,
    BadRequest,
    Cancelled,
    CapacityError,
    ConversationBusy,
    EngineDied,
    EngineFailed,
    GliaError,
    HashMismatch,
    LocalProtocolError,
    ManifestError,
    ModelRefused,
    NotRunning,
    PoolExhausted,
    PromptError,
    QuotaExceeded,
    StoreBroken,
    UnknownConversation,
    UnknownModel,
)

INSIDE = "/home/ann/inside"


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (UnknownModel, 404, "model_not_found"),
        (UnknownConversation, 404, "conversation_not_found"),
        (PromptError, 400, "prompt"),
        (BadRequest, 400, "bad_request"),
        (LocalProtocolError, 413, "body_too_large"),
        (QuotaExceeded, 429, "rate_limit_exceeded"),
        (ConversationBusy, 429, "conversation_busy"),
        (CapacityError, 503, "capacity"),
        (PoolExhausted, 503, "pool_exhausted"),
        (EngineDied, 503, "engine_died"),
        (Cancelled, 503, "cancelled"),
        (NotRunning, 503, "not_running"),
        (ModelRefused, 500, "model_refused"),
        (ManifestError, 500, "manifest"),
        (EngineFailed, 500, "internal"),
        (HashMismatch, 500, "internal"),
        (StoreBroken, 500, "internal"),
        (GliaError, 500, "internal"),
    ],
)
def test_statuses(kind: type[GliaError], status: int, code: str) -> None:
    refusal = refusal_of(kind("what happened", hint="what to do"))
    assert (refusal.status, refusal.code) == (status, code)
    assert refusal.can_retry == (status in (429, 503))


@pytest.mark.parametrize("code", sorted(_BY_CODE))
def test_no_error_of_ours_tells_internals(code: str) -> None:
    refusal = refusal_of(_BY_CODE[code](f"failed at {INSIDE}"))
    assert (refusal is INTERNAL) == (INSIDE not in refusal.message)
    assert INSIDE not in INTERNAL.message


def test_the_form_is_openais() -> None:
    refusal = refusal_of(BadField("no", field="messages[0].role", reason="unsupported_value"))
    assert json.loads(refusal.body) == {
        "error": {
            "message": "no",
            "type": "invalid_request_error",
            "param": "messages[0].role",
            "code": "unsupported_value",
        }
    }
    assert json.loads(refusal_of(EngineDied("it died")).body)["error"]["type"] == "server_error"


def test_clients_are_told_whether_to_try_again() -> None:
    assert refusal_of(EngineDied("it died")).headers == {"retry-after": "1"}
    assert refusal_of(ModelRefused("no")).headers == {"x-should-retry": "false"}
    assert Refusal(401, "invalid_api_key", "no").headers == {"x-should-retry": "false"}


def test_hints_of_what_to_type_are_told_where_they_help() -> None:
    assert "gliad models" in refusal_of(UnknownModel("no such", hint="gliad models")).message
    assert "--raw" not in refusal_of(PromptError("no", hint="use --raw")).message
