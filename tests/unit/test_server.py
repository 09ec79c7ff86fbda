"""Which errors end a connection quietly and which are crashes."""

from __future__ import annotations

import trio

from daemon.server import _accusation
from glia.errors import QuotaExceeded, RemoteProtocolError


def group_of(*errors: Exception) -> BaseExceptionGroup[BaseException]:
    """What a nursery raises when its tasks fail while it is cancelled from outside."""
    caught: list[BaseExceptionGroup[BaseException]] = []

    async def fail(error: Exception) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise error

    async def main() -> None:
        with trio.CancelScope() as outer:
            try:
                async with trio.open_nursery() as nursery:
                    for error in errors:
                        nursery.start_soon(fail, error)
                    outer.cancel()
                    await trio.sleep_forever()
            except BaseExceptionGroup as group:
                caught.append(group)

    trio.run(main)
    return caught[0]


def test_an_accusation_beside_a_cancellation_is_one() -> None:
    error = RemoteProtocolError("bad frame")
    group = group_of(error)
    assert group.split(trio.Cancelled)[0] is not None
    assert _accusation(group) is error
    assert _accusation(group_of(QuotaExceeded("does not read"))).args == ("does not read",)


def test_anything_worse_beside_it_stays_a_crash() -> None:
    group = group_of(RemoteProtocolError("bad frame"), ValueError("a bug"))
    assert _accusation(group) is group
    alone = group_of(ValueError("a bug"))
    assert _accusation(alone) is alone
