"""What every message is: a call, an event or a reply; and what any call may be told."""

from __future__ import annotations

from msgspec import Struct

from glia.local.values import Count


class Call(Struct, frozen=True, array_like=True, tag=True):
    """Base of everything that is answered by one reply."""

    id: Count


class Event(Struct, frozen=True, array_like=True, tag=True):
    """Base of what may come before a reply. `id` names the call."""

    id: Count


class Reply(Struct, frozen=True, array_like=True, tag=True):
    """Base of answers. `id` names the call."""

    id: Count


class Failed(Reply, frozen=True):
    """The call failed: code, message and hint of the error (glia/errors.py)."""

    code: str
    message: str
    hint: str | None


class Done(Reply, frozen=True):
    """The call succeeded and has nothing to say."""


class Progress(Event, frozen=True):
    """Something long is going on: `done` of `total` (0 = unknown) of `what`."""

    what: str
    done: int
    total: int
