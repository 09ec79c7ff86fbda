"""One budget of memory for all engines: who may start, who makes room. Decides, does nothing.

An engine holds what it is expected to need from before it is started until its process is
gone. Those that do not fit wait in order; for the first of them idle engines leave, least
recently used first, once that is enough. Where running ones are in the way it waits until
they are idle; after a while they take no new requests, so that it gets its turn.

Requests end if runs do: the first that waits is let in as soon as enough others are gone,
those in its way are bound to go, and none is let in before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from glia.errors import CapacityError


class Tenant(Protocol):
    """An engine, as far as it matters here. Told apart by identity."""

    @property
    def is_busy(self) -> bool:
        """Whether a request waits for it or runs in it."""

    @property
    def is_leaving(self) -> bool:
        """Whether it is on its way out."""

    @property
    def used_s(self) -> float:
        """When it was last asked."""


T = TypeVar("T", bound=Tenant)


@dataclass(frozen=True, slots=True)
class Settled(Generic[T]):
    """What is to be done now.

    Attributes:
        granted: hold memory now and may start.
        leaving: are to leave: to take no new requests, and to end once they have none.
    """

    granted: tuple[T, ...]
    leaving: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class _Wish:
    need_bytes: int
    since_s: float


class EngineMemory(Generic[T]):
    """Owns who holds how much.

    Args:
        budget_bytes: of all together.
        patience_s: how long running engines in the way may take new requests.
    """

    def __init__(self, budget_bytes: int, patience_s: float) -> None:
        self.budget_bytes = budget_bytes
        self.patience_s = patience_s
        self._held: dict[T, int] = {}
        self._waiting: dict[T, _Wish] = {}

    @property
    def held_bytes(self) -> int:
        """What all hold together."""
        return sum(self._held.values())

    def held_by(self, tenant: T) -> int | None:
        """What one holds; None while it waits."""
        return self._held.get(tenant)

    def ask(self, tenant: T, need_bytes: int, now_s: float) -> None:
        """Queue up for memory; `settle` says when it is there.

        Raises: CapacityError where it can never be.
        """
        if need_bytes > self.budget_bytes:
            raise CapacityError(
                f"needs about {_mib(need_bytes)}, all engines together "
                f"may have {_mib(self.budget_bytes)}",
                hint="raise [engine] memory, or lower [l0] size, in glia.toml",
            )
        self._waiting[tenant] = _Wish(need_bytes, now_s)

    def ask_beside(self, tenant: T, need_bytes: int) -> None:
        """Hold memory now, without anybody leaving. Raises: CapacityError."""
        if need_bytes > self.budget_bytes - self.held_bytes:
            raise CapacityError(
                f"needs about {_mib(need_bytes)}, of {_mib(self.budget_bytes)} for all "
                f"engines others have {_mib(self.held_bytes)}",
                hint="raise [engine] memory, or preload fewer models, in glia.toml",
            )
        self._held[tenant] = need_bytes

    def correct(self, tenant: T, size_bytes: int) -> None:
        """It turned out to need so much. Where that is too much, idle ones leave for it."""
        if tenant in self._held:
            self._held[tenant] = size_bytes

    def forget(self, tenant: T) -> None:
        """It is gone, or does not wait any more. Idempotent."""
        self._held.pop(tenant, None)
        self._waiting.pop(tenant, None)

    def settle(self, now_s: float) -> Settled[T]:
        """Whom to let in, and who is to leave from now on."""
        granted: list[T] = []
        for tenant, wish in list(self._waiting.items()):
            if wish.need_bytes > self.budget_bytes - self.held_bytes:
                is_patient = now_s < wish.since_s + self.patience_s
                return Settled(tuple(granted), self._make_room(wish.need_bytes, is_patient))
            del self._waiting[tenant]
            self._held[tenant] = wish.need_bytes
            granted.append(tenant)
        return Settled(tuple(granted), self._make_room(0, is_patient=True))

    def _make_room(self, need_bytes: int, is_patient: bool) -> tuple[T, ...]:
        """Who else must leave for that; nobody where it would not be enough."""
        staying = {t: size for t, size in self._held.items() if not t.is_leaving}
        missing = need_bytes + sum(staying.values()) - self.budget_bytes
        chosen: list[T] = []
        for tenant in sorted(staying, key=lambda t: (t.is_busy, t.used_s)):
            if missing <= 0 or (tenant.is_busy and is_patient):
                break
            chosen.append(tenant)
            missing -= staying[tenant]
        if missing > 0 and need_bytes:
            return self._make_room(0, is_patient=True)
        return tuple(chosen)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.0f} MiB"
