"""Clients' staging areas: how much one may have, and all together."""

from __future__ import annotations

from daemon.arena import SharedMemory, make_staging
from glia.errors import QuotaExceeded

_TOTAL_SHARES = 4  # of what one client may have


class StagingAreas:
    """The areas there are. Owned by the trio thread."""

    def __init__(self, max_client_bytes: int) -> None:
        self._max_client_bytes = max_client_bytes
        self._total_bytes = 0

    def open(self, size_bytes: int) -> SharedMemory:
        """A new area. Raises: QuotaExceeded."""
        if not 1 <= size_bytes <= self._max_client_bytes:
            raise QuotaExceeded(
                f"a staging area is 1 to {self._max_client_bytes:,} bytes, not {size_bytes:,}",
                hint="raise l1.staging_size in glia.toml",
            )
        if self._total_bytes + size_bytes > _TOTAL_SHARES * self._max_client_bytes:
            raise QuotaExceeded("the other clients hold all the staging there is")
        try:
            area = make_staging(size_bytes)
        except OSError as error:
            raise QuotaExceeded(
                f"no memory for a staging area of {size_bytes:,} bytes: {error.strerror}",
                hint="lower l1.staging_size in glia.toml",
            ) from error
        self._total_bytes += size_bytes
        return area

    def close(self, area: SharedMemory) -> None:
        """Give an area back."""
        self._total_bytes -= area.size_bytes
        area.close()
