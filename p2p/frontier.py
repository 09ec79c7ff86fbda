"""The windows of a chain that are open: asked for, or here and not yet handed on. Sans-IO.

They are opened, and handed on, in order from the front or from the back, as a budget of
bytes allows; so memory is bounded whatever the chain's length, and what was handed on is a
whole prefix, or suffix.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

from glia.errors import MalformedParticle
from glia.graph.domain import Salt
from glia.graph.ids import BlockId
from glia.graph.profile import Profile
from glia.graph.window import WindowRecord
from p2p.door import expected_blocks
from p2p.source import Want


@dataclass(frozen=True, slots=True)
class Window:
    """A window that is whole.

    Attributes:
        particles: by layer, good until it was delivered; None where the block was held here.
    """

    record: WindowRecord
    particles: tuple[memoryview | None, ...]


@dataclass(eq=False, slots=True)
class _OpenWindow:
    record: WindowRecord
    particles: list[memoryview | None]
    num_missing: int
    room: bytearray | None = None


class Frontier:
    """Windows are counted in the order in which they are fetched.

    Args:
        records: a walk's, in order; they follow `base`, or genesis where that is None.
        held: blocks that are here.
        budget_bytes: of open windows; one window is always allowed.
        salt: of the group in whose domain they are.
    """

    def __init__(
        self,
        records: Sequence[WindowRecord],
        base: WindowRecord | None,
        profile: Profile,
        *,
        held: Collection[BlockId],
        from_back: bool,
        budget_bytes: int,
        salt: Salt | None,
    ) -> None:
        self._records, self._base, self._profile = records, base, profile
        self._first = records[0].position_start // profile.block_size if records else 0
        self._held, self._from_back, self._salt = held, from_back, salt
        self._most = max(1, budget_bytes // profile.window_particle_bytes)
        self._ends = list(accumulate(profile.particle_sizes))
        self._windows: deque[_OpenWindow] = deque()
        self._rooms: list[bytearray] = []  # to be used again: the kernel takes long to find new
        self._end = len(records)
        self.num_done = 0
        self.free: list[Want] = []  # asked of nobody, in order
        self.malformed: MalformedParticle | None = None

    @property
    def is_over(self) -> bool:
        """Whether all that is still wanted was handed on."""
        return self.num_done >= self._end

    @property
    def is_all_open(self) -> bool:
        """Whether there is no window left to open."""
        return self._num_opened >= self._end

    @property
    def is_whole(self) -> bool:
        """Whether everything was handed on."""
        return self.num_done == len(self._records)

    @property
    def _num_opened(self) -> int:
        return self.num_done + len(self._windows)

    def place(self, want: Want) -> int:
        """Which window of the chain a block is of, from genesis."""
        return self._first + self._index(want.window)

    def _index(self, window: int) -> int:
        return len(self._records) - 1 - window if self._from_back else window

    def is_wanted(self, want: Want) -> bool:
        """Whether a block is still of use."""
        return not want.is_done and want.window < self._end

    def open_more(self) -> None:
        """Open what the budget allows; end before a window that cannot be."""
        while not self.is_all_open and len(self._windows) < self._most:
            at = self._index(self._num_opened)
            try:
                wants = self._wants(at)
            except MalformedParticle as error:
                self.blame(self._num_opened, error)
                return
            record = self._records[at]
            self._windows.append(_OpenWindow(record, [None] * len(record.blocks), len(wants)))
            self.free += wants

    def _wants(self, at: int) -> list[Want]:
        record = self._records[at]
        before = self._records[at - 1] if at else self._base
        return [
            Want(expected, self._num_opened, layer)
            for layer, expected in enumerate(
                expected_blocks(record, before, self._profile, self._salt)
            )
            if expected.block_id not in self._held
        ]

    def set_free(self, wants: Collection[Want]) -> None:
        """Nobody may owe these any more: then they are to be asked for again."""
        lost = [want for want in wants if self.is_wanted(want) and not want.askers]
        if lost:
            self.free = sorted([*self.free, *lost], key=lambda want: (want.window, want.layer))

    def keep(self, want: Want, particle: bytes | memoryview) -> None:
        """A wanted block came, and was verified; it is copied."""
        want.is_done = True
        window = self._windows[want.window - self.num_done]
        if window.room is None:
            window.room = self._rooms.pop() if self._rooms else bytearray(self._ends[-1])
        end = self._ends[want.layer]
        place = memoryview(window.room)[end - len(particle) : end]
        place[:] = particle
        window.particles[want.layer] = place
        window.num_missing -= 1

    def ready(self) -> Window | None:
        """The next window, if it is whole."""
        if not self._windows or self._windows[0].num_missing:
            return None
        return Window(self._windows[0].record, tuple(self._windows[0].particles))

    def delivered(self) -> None:
        """The window that was ready was copied by whoever wants it."""
        room = self._windows.popleft().room
        if room is not None:
            self._rooms.append(room)
        self.num_done += 1

    def blame(self, window: int, error: MalformedParticle) -> None:
        """Whoever wrote the chain broke it here: end before."""
        self.malformed = error
        self.cut(window)

    def cut(self, window: int) -> None:
        """Windows from this one on are not wanted any more."""
        self._end = window
        self.free = [want for want in self.free if self.is_wanted(want)]
        while self._windows and self._num_opened > self._end:
            self._windows.pop()
