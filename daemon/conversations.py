"""All conversations of a node, by name: what each is, who is at it, what may be forgotten.

Heads are here; tokens and messages are read from the files when they are needed, in worker
threads. At most one at a time answers in a conversation, or forgets it. Owned by the trio
thread.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import trio

from daemon.config import ConversationsConfig
from daemon.conversation_files import LIVE, MARKED, ConversationFiles
from daemon.conversation_table import ConversationTable
from daemon.domains import Groups, NoGroups, name_of
from daemon.expiry import SECOND_US, expired, expires_s
from daemon.mending import Kept
from daemon.past import Past
from daemon.taken import Running, Taken, busy
from glia.errors import BadRequest, GliaError, QuotaExceeded, StoreBroken, UnknownConversation
from glia.graph.conversation import Begin, Head, Record, Replay, Turn, is_anonymous, is_name
from glia.graph.group import GroupId
from glia.graph.ids import ModelId, WindowId
from glia.graph.privacy import Visibility, label_word
from glia.local.values import ConversationValue

_MAX_CONVERSATIONS = 2**20


class Conversations:
    """The one that knows them.

    Attributes:
        counters: files that were cut, and set aside.
        strays: there may be windows that were to be forgotten once answered, and of which no
            file says so.
        check_here: raises where a conversation that begins so may not go on here.
        moved_to: the neuron of the Body that has it; "" where this one does.
        look: awaited before a turn: whether another Body has claimed some.
        condemned: windows that are used no more: answers whose tip is one are tainted.
        on_change: called when one was made, has grown, was removed, or may be forgotten now.
        groups: that may read some of them.
    """

    def __init__(
        self,
        files: ConversationFiles,
        settings: ConversationsConfig,
        groups: Groups | None = None,
    ) -> None:
        """Reads the directory. Raises: StoreVersion, StoreFull, StoreBroken.

        Args: groups: None where this node is in none.
        """
        self.settings = settings
        self.strays = False
        self.on_change: Callable[[], None] = lambda: None
        self.check_here: Callable[[Begin], None] = lambda _: None
        self.moved_to: Callable[[Begin], str] = lambda _: ""
        self.look: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.groups: Groups = groups or NoGroups()
        self._files = files
        self._taken = Taken(self._left)
        self._table = ConversationTable(files, files.open(), self._taken, self._changed)
        self.counters = self._table.counters
        self.condemned: Collection[WindowId] = frozenset()

    # -- what is there ----------------------------------------------------------------------

    def names(self) -> list[str]:
        """Of all that are not being forgotten."""
        return list(self._table.live)

    def marked(self) -> list[str]:
        """Of those that are to be forgotten, whatever happens: before a crash, too."""
        return list(self._table.marked)

    def forgettable(self) -> list[str]:
        """Marked ones that nobody is at."""
        return [name for name in self._table.marked if name not in self._taken]

    def past(self, names: Iterable[str], *, at_them: bool = False) -> Past:
        """What these ever said until now, as far as it can be read.

        Args: at_them: the caller holds them.
        Raises: UnknownConversation.
        """
        readable = [name for name in names if not self._table.is_aside(name)]
        kept = {name: (self._kept(name), self._table.suffix(name)) for name in readable}
        mend = partial(trio.from_thread.run, partial(self._table.mend, at_it=at_them))
        return Past(self._files, kept, mend)

    def head(self, name: str) -> Head:
        """What is known of one, marked ones included. Raises: UnknownConversation."""
        return self._kept(name).head

    def __contains__(self, name: object) -> bool:
        """Whether there is one of that name that is not being forgotten."""
        return name in self._table.live

    def __len__(self) -> int:
        """How many are not being forgotten."""
        return len(self._table.live)

    def values(self, start: int, most: int) -> list[ConversationValue]:
        """A part of all that are not being forgotten, last used first."""
        live = self._table.live
        names = sorted(live, key=lambda name: live[name].head.used_us, reverse=True)
        return [self.value(name) for name in names[start : start + most]]

    def value(self, name: str) -> ConversationValue:
        """One as it is listed. Raises: UnknownConversation."""
        kept = self._kept(name)
        head = kept.head
        return ConversationValue(
            name=name,
            model=head.begin.model,
            dtype=head.begin.dtype,
            model_id=head.begin.model_id,
            anonymous=is_anonymous(name),
            created_s=head.begin.created_us / SECOND_US,
            used_s=head.used_us / SECOND_US,
            num_tokens=head.num_tokens,
            num_messages=head.num_messages,
            tip=head.tip,
            visibility=self.word(*_label(head)),
            running=name in self._taken.running,
            expires_s=expires_s(kept, self.settings) if is_anonymous(name) else None,
            num_tainted=sum(tip in self.condemned for tip in head.tips),
            moved_to=self.moved_to(head.begin),
        )

    def word(self, visibility: Visibility, group: GroupId | None) -> str:
        """A label as it is told. Args: group: whose it is, if it is aggregate."""
        return label_word(visibility, name_of(self.groups, group) if group is not None else "")

    async def read(self, name: str, *, at_it: bool = False) -> Replay:
        """Its tokens and messages; where its file was damaged, what is whole of it.

        Args: at_it: the caller answers in it, and has read nothing of it yet.
        Raises: UnknownConversation, StoreBroken (set aside, or damaged and in use),
            ConversationBusy (its first turn is under way).
        """
        kept = self._kept(name)
        try:
            return await self._table.read(name, kept)
        except StoreBroken:
            mended = await self._table.mend(name, kept, at_it=at_it)
        if mended is None:
            raise self._missing(name)
        return await self._table.read(name, mended)

    # -- making them longer -----------------------------------------------------------------

    def new_name(self) -> str:
        """A name for one without."""
        while True:
            name = f"@{secrets.token_hex(4)}"
            if self._table.kept(name) is None and name not in self._taken:
                return name

    def check_new(self, name: str) -> None:
        """Raises: BadRequest (no name, or taken), ConversationBusy (of one being forgotten)."""
        if not is_name(name) or is_anonymous(name):
            raise BadRequest(
                f"no conversation can be called {name[:80]!r}",
                hint="letters, digits, . _ - and 64 at most; a letter or a digit first",
            )
        if name in self._table.live:
            raise BadRequest(f"there is a conversation {name} already", hint="gliad conversations")
        if len(self._table.live) >= _MAX_CONVERSATIONS:
            raise QuotaExceeded(
                f"there are {len(self._table.live):,} conversations, no more can be",
                hint="gliad forget NAME",
            )
        if name in self._table.marked:
            raise busy(name, "is being forgotten")

    @contextmanager
    def answering(self, name: str, running: Running) -> Iterator[None]:
        """Be the one that answers in it. Raises: ConversationBusy."""
        with self._taken.by_answer(name, running):
            yield

    async def create(self, name: str, records: Sequence[Record], *, marked: bool = False) -> None:
        """Make one of records; the caller is at its name.

        Args:
            marked: it is to be forgotten at once.
        Raises: StoreFull, StoreBroken.
        """
        suffix = MARKED if marked else LIVE
        kept = await trio.to_thread.run_sync(self._files.create, name, records, suffix)
        (self._table.marked if marked else self._table.live)[name] = kept
        self.on_change()

    async def append(self, name: str, head: Head, turn: Turn) -> None:
        """Write a turn, after which it is `head`; the caller is at it.

        Raises: UnknownConversation, StoreFull, StoreBroken, QuotaExceeded.
        """
        kept = self._table.live.get(name)
        if kept is None:
            raise _unknown(name)
        try:
            grown = await trio.to_thread.run_sync(self._files.append, name, kept, head, turn)
        except UnknownConversation:
            self._table.drop(name, kept)
            raise
        self._table.live[name] = grown
        self.on_change()

    @contextmanager
    def making(self, name: str) -> Iterator[None]:
        """Be the one that makes a new one. Raises: BadRequest, ConversationBusy."""
        self.check_new(name)
        with self._taken.by(name, "is being made"):
            yield

    @contextmanager
    def restoring(self, name: str) -> Iterator[None]:
        """Be the one that brings one back, whether or not it is here. Raises: ConversationBusy."""
        if name in self._table.marked:
            raise busy(name, "is being forgotten")
        with self._taken.by(name, "is being restored"):
            yield

    def was_restored(self, name: str, kept: Kept) -> None:
        """Its file is in its place now; the caller restores it."""
        self._table.live[name] = kept
        self.on_change()

    # -- forgetting -------------------------------------------------------------------------

    def expired(self, now_s: float) -> list[str]:
        """Anonymous ones that nobody is at and that are to be forgotten: too old, or too many;
        oldest first."""
        anonymous = {
            name: kept
            for name, kept in self._table.live.items()
            if is_anonymous(name) and name not in self._taken
        }
        return expired(anonymous, self.settings, now_s)

    @contextmanager
    def hold(self, name: str, why: str = "is being forgotten") -> Iterator[None]:
        """Keep everybody else away from it, or from what was set aside of it.

        Args: why: what others are told.
        Raises: ConversationBusy, UnknownConversation.
        """
        if not self._table.is_aside(name):
            self._kept(name)
        with self._taken.by(name, why):
            yield

    async def mark(self, name: str) -> None:
        """From now on it is to be forgotten, whatever happens; the caller holds it.

        One that was set aside is read by nobody: there is nothing to go on with.
        Raises: UnknownConversation, StoreBroken.
        """
        kept = self._table.live.get(name)
        if kept is not None:
            await trio.to_thread.run_sync(self._files.mark, name)
            # Who read meanwhile may have missed its file, and dropped it.
            self._table.live.pop(name, None)
            self._table.marked[name] = kept
            self.on_change()

    def was_set_aside(self, name: str) -> bool:
        """Whether something of it was, as it was damaged, or of one that had its name."""
        return name in self._table.aside

    async def remove(self, name: str) -> None:
        """Overwrite and remove the files of one that is marked or set aside; the caller holds it.

        Raises: StoreBroken.
        """
        await trio.to_thread.run_sync(self._files.erase, name)
        self._table.marked.pop(name, None)
        self._table.aside.discard(name)
        self.on_change()

    def running(self) -> list[tuple[ModelId, Running]]:
        """What is being answered, and its model, but for requests without an engine in
        conversations that are none yet."""
        found: list[tuple[ModelId, Running]] = []
        for name, running in self._taken.running.items():
            kept = self._table.live.get(name)
            model_id = kept.head.begin.model_id if kept is not None else running.model_id
            if model_id is not None:
                found.append((model_id, running))
        return found

    def taint(self, model_id: ModelId, tokens: Sequence[int], window_id: WindowId) -> None:
        """A window that ends these tokens does not hold: answers under way that begin with them
        used it, unless they were given other windows of the same tokens."""
        for running in self._taken.running.values():
            if running.model_id == model_id and running.tokens[: len(tokens)] == tokens:
                running.tainted_by = window_id

    # -- inside -----------------------------------------------------------------------------

    def _kept(self, name: str) -> Kept:
        kept = self._table.kept(name)
        if kept is not None:
            return kept
        self._taken.check(name)
        raise self._missing(name)

    def _missing(self, name: str) -> GliaError:
        if name in self._table.aside:
            return StoreBroken(
                f"{name} could not be read and was set aside",
                hint=f"gliad forget {name} removes it for good",
            )
        return _unknown(name)

    def _left(self, name: str) -> None:
        """Nobody is at it any more."""
        if name in self._table.marked:
            self.on_change()

    def _changed(self) -> None:
        self.on_change()


def _label(head: Head) -> tuple[Visibility, GroupId | None]:
    return (head.visibility, head.group) if head.num_tokens else (Visibility.PRIVATE, None)


def _unknown(name: str) -> UnknownConversation:
    return UnknownConversation(
        f"there is no conversation {name[:80]!r}", hint="gliad conversations"
    )
