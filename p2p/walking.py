"""A chain's records, from its tip back: each is held to the name that the one after it gives.

Sans-IO. What a walk has taken so far is true of the tip, whoever sent it; so another peer
may go on where one stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from glia.errors import MalformedParticle
from glia.graph.domain import Salt
from glia.graph.ids import ModelId, WindowId, genesis_window, short
from glia.graph.numerics import may_continue
from glia.graph.profile import Profile
from glia.graph.tokens import TOKEN_BYTES
from glia.graph.window import MAX_CLASS_BYTES, WindowRecord
from p2p.door import take_record

Held = Callable[[WindowId], WindowRecord | None]


@dataclass(frozen=True)
class Question:
    """Which chains are wanted. `tokens` never leave the node.

    Attributes:
        tokens: what the chain's windows must hold, from genesis; None takes any.
        classes: the numerics classes that are taken, the best first; empty takes any.
        own_class: wins a tie where any class is taken.
        held: the record of a window that is whole here, or None: no walk goes behind it.
        salt: of the group in whose domain the windows are that are asked for; those before it
            are public, and are here.
        public: the last of these; None where the domain begins at genesis.
    """

    model_id: ModelId
    profile: Profile
    tokens: Sequence[int] | None = None
    classes: tuple[str, ...] = ()
    own_class: str = ""
    held: Held = field(default=lambda _: None, repr=False)
    salt: Salt | None = None
    public: WindowRecord | None = None

    @property
    def num_public(self) -> int:
        """Windows before the group's domain."""
        return 0 if self.salt is None else self.salt.start // self.profile.block_size

    @property
    def root(self) -> WindowId:
        """What the first window that is asked for follows, by its own name."""
        if self.public is not None:
            return self.public.window_id
        return genesis_window(self.model_id, self.profile.profile_id)

    def admits(self, record: WindowRecord, index: int) -> bool:
        """Whether a record may be window `index` of an answer."""
        size = self.profile.block_size
        start = index * size
        return (
            record.position_start == start
            and (not self.classes or record.numerics_class in self.classes)
            and (self.tokens is None or record.tokens == tuple(self.tokens[start : start + size]))
        )


class Walk:
    """The walk from one tip. `question`: what it is to answer."""

    def __init__(self, question: Question, tip: WindowId, num_windows: int) -> None:
        self.question = question
        self._records: list[WindowRecord] = []  # newest first
        self.tip = tip
        self.num_windows = num_windows
        self.next_id = tip
        self.num_left = num_windows
        self.base: WindowRecord | None = None
        self._look_behind()

    @property
    def is_over(self) -> bool:
        """Whether everything that is not here was walked."""
        return not self.num_left

    @property
    def num_before(self) -> int:
        """Windows up to `base`, it among them: those that were not walked."""
        return self.base.end // self.question.profile.block_size if self.base else 0

    @property
    def records(self) -> list[WindowRecord]:
        """What was walked, in order; it follows `base`, or genesis where that is None."""
        return self._records[::-1]

    def take(self, encodings: Collection[bytes]) -> None:
        """The next records, newest first; what comes behind the end is not looked at.

        Raises:
            HashMismatch: not the named bytes: blames the carrier.
            MalformedParticle: not a chain, or not the one that was asked for.
        """
        for encoding in encodings:
            if self.is_over:
                return
            self._take(encoding)

    def _take(self, encoding: bytes) -> None:
        question = self.question
        record = take_record(encoding, self.next_id, question.model_id, question.profile)
        index = self.num_left - 1
        if not question.admits(record, index):
            raise MalformedParticle(f"window {short(record.window_id)} is not what was asked for")
        record = self._rooted(record, index)
        self._check_class(record)
        self._records.append(record)
        self.next_id = record.before
        self.num_left = index
        self._look_behind()

    def _rooted(self, record: WindowRecord, index: int) -> WindowRecord:
        """A record as it is known here, in its group. Raises: MalformedParticle."""
        question = self.question
        salt, root = question.salt, question.root
        is_first = index == question.num_public
        if is_first and record.prev != (root if salt is None else salt.window(root)):
            raise MalformedParticle(f"window {short(self.tip)}: no genesis under its chain")
        if salt is None:
            return record
        return replace(record, group=salt.group, root=salt.root(root) if is_first else None)

    def _look_behind(self) -> None:
        """End where what comes next is here already."""
        if not self.num_left:
            return
        if self.num_left < self.question.num_public:
            raise MalformedParticle(f"window {short(self.tip)} is not in the group's domain")
        known = self._known()
        if known is None:
            return
        if not self.question.admits(known, self.num_left - 1):
            raise MalformedParticle(f"window {short(self.tip)} continues what was not asked for")
        self._check_class(known)
        self.base = known
        self.num_left = 0

    def _known(self) -> WindowRecord | None:
        """The window that comes next, where it is here."""
        question = self.question
        if question.salt is not None and self.num_left == question.num_public:
            return question.public
        return question.held(self.next_id)

    def _check_class(self, record: WindowRecord) -> None:
        """Whether what was walked may continue this one. Raises: MalformedParticle."""
        walked = self._records
        if walked and not may_continue(walked[-1].numerics_class, record.numerics_class):
            raise MalformedParticle(
                f"window {short(walked[-1].window_id)} is canonical, and what it continues is not"
            )


def record_bytes(profile: Profile) -> int:
    """The most that a record of this profile can have."""
    return 120 + TOKEN_BYTES * profile.block_size + 32 * len(profile.layers) + MAX_CLASS_BYTES
