"""L1 and below over the local API: the TierMemory that an engine process uses."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glia.client import Client
from glia.engine.memory import Examined, Leased
from glia.graph.domain import Domain
from glia.graph.ids import WindowId
from glia.graph.profile import Profile
from glia.local.values import FindingValue


class RemoteMemory:
    """Keeps the TierMemory port over one attached connection.

    Args:
        client: attached (`Client.attach`) with `profile`.
        staging_bytes: how much staging to ask for.
    Raises: QuotaExceeded where gliad does not give so much staging.
    """

    def __init__(self, client: Client, profile: Profile, staging_bytes: int) -> None:
        self._client = client
        self._profile = profile
        self._arena = np.frombuffer(client.arena, dtype=np.uint8)
        self._staging = np.frombuffer(client.make_staging(staging_bytes), dtype=np.uint8)
        self._leases: deque[int] = deque()
        self._seals: deque[int] = deque()

    @property
    def arena(self) -> NDArray[np.uint8]:
        """L1, [arena_bytes]; a private mapping, so writes reach nobody."""
        return self._arena

    @property
    def staging(self) -> NDArray[np.uint8]:
        """[staging_bytes], shared with gliad."""
        return self._staging

    def match(
        self, tokens: Sequence[int], *, exact: bool = True, domain: Domain | None = None
    ) -> list[WindowId]:
        """The longest known chain of whole windows, with what peers are sending."""
        return self._client.match(tokens, exact=exact, domain=domain, coming=True)

    def known(self, window_ids: Sequence[WindowId]) -> set[WindowId]:
        """Those of these windows that are whole in L1 or L2."""
        return set(self._client.known(window_ids))

    def adopt(self, prev: WindowId | None, tokens: Sequence[int]) -> list[WindowId]:
        """Windows that peers sent ahead."""
        return self._client.adopt(prev, tokens)

    def lease_begin(self, window_ids: Sequence[WindowId]) -> None:
        """Ask for a lease."""
        self._leases.append(self._client.lease_begin(window_ids))

    def lease_end(self) -> Leased:
        """The oldest asked lease; offsets moved from the particles to their payloads."""
        reply = self._client.lease_end(self._leases.popleft())
        num_windows, num_layers = len(reply.tiers), len(self._profile.layers)
        particles = np.frombuffer(reply.offsets, dtype="<u8").astype(np.int64)
        offsets = particles.reshape(num_windows, num_layers) + self._profile.header_bytes
        tiers, checks = tuple(reply.tiers), tuple(reply.checks)
        return Leased(reply.lease, offsets, tiers, checks, reply.late)

    def examined(self, found: Sequence[Examined]) -> list[WindowId]:
        """Tell what came of looking at windows."""
        return self._client.examined([finding_value(each) for each in found])

    def release(self, lease: int) -> None:
        """Give a lease back."""
        self._client.release(lease)

    def seal_begin(
        self,
        prev: WindowId | None,
        position_start: int,
        tokens: Sequence[int],
        offset: int,
        num_steps: int,
        domain: Domain | None = None,
    ) -> None:
        """Ask for names of full windows that stand in staging."""
        self._seals.append(
            self._client.seal_begin(prev, position_start, tokens, offset, num_steps, domain)
        )

    def seal_end(self) -> list[WindowId]:
        """Names of the oldest asked seal."""
        sealed = self._client.seal_end(self._seals.popleft())
        return [WindowId(name) for name in sealed.windows]

    def seal_ready(self) -> bool:
        """Whether seal_end would not wait."""
        return bool(self._seals) and self._client.seal_ready(self._seals[0])

    def flush(self, window_ids: Sequence[WindowId]) -> None:
        """Return when these windows are durable."""
        self._client.flush(window_ids)


def finding_value(each: Examined) -> FindingValue:
    """As the local API has it."""
    found = each.finding
    return FindingValue(
        each.window_id,
        each.is_audit,
        found.verdict,
        found.what,
        found.layer,
        found.error,
        found.limit,
    )
