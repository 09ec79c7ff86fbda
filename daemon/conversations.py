"""All conversations of a node, by name: what each is, who is at it, what may be forgotten.

Heads are here; tokens and messages are read from the files when they are needed, in worker
threads. At most one at a time answers in a conversation, or forgets it. Owned by the trio
thread.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from daemon.config import ConversationsConfig
from daemon.conversation_files import LIVE, MARKED, ConversationFiles, Kept
from daemon.past import Past
from glia.errors import (
    BadRequest,
    ConversationBusy,
    QuotaExceeded,
    StoreBroken,
    UnknownConversation,
)
from glia.graph.conversation import Head, Record, Replay, Turn, is_anonymous, is_name
from glia.graph.ids import ModelId, WindowId
from glia.graph.privacy import Visibility
from glia.graph.tokens import unpack_tokens
from glia.local.values import ConversationValue

_SECOND_US = 1_000_000
_HOUR_S = 3600.0
_MAX_CONVERSATIONS = 2**20
_MAX_ANONYMOUS_BYTES = 2**30  # of their files together


@dataclass(frozen=True, slots=True)
class Reference:
    """What refers to windows: a conversation, or a request that runs and is none yet.

    Attributes:
        tips: every tip the conversation ever had, oldest first.
        running: the tokens of what is being answered in it, None where nothing is.
        model_id: None where a request has no engine yet.
    """

    name: str
    tips: tuple[WindowId, ...]
    model_id: ModelId | None
    running: Sequence[int] | None = None


@dataclass
class Running:
    """A request under way in a conversation. `model_id`: once it has an engine.

    tokens: prompt and answer, as far as it is.
    """

    tokens: list[int]
    model_id: ModelId | None = None


class Conversations:
    """The one that knows them.

    Attributes:
        strays: there may be windows that were to be forgotten once answered, and of which no
            file says so.
        on_change: called when one was made, has grown, was removed, or may be forgotten now.
    """

    def __init__(self, files: ConversationFiles, settings: ConversationsConfig) -> None:
        """Reads the directory. Raises: StoreVersion, StoreFull, StoreBroken."""
        opened = files.open()
        self.settings = settings
        self.num_cut, self.num_bad = opened.num_cut, opened.num_bad
        self.strays = False
        self.on_change: Callable[[], None] = lambda: None
        self._files = files
        self._live = opened.live
        self._marked = opened.marked
        self._aside = set(opened.aside)
        self._busy: dict[str, str] = {}
        self._running: dict[str, Running] = {}

    # -- what is there ----------------------------------------------------------------------

    def names(self) -> list[str]:
        """Of all that are not being forgotten."""
        return list(self._live)

    def marked(self) -> list[str]:
        """Of those that are to be forgotten, whatever happens: before a crash, too."""
        return list(self._marked)

    def forgettable(self) -> list[str]:
        """Marked ones that nobody is at."""
        return [name for name in self._marked if name not in self._busy]

    def past(self, names: Iterable[str]) -> Past:
        """What these ever said until now, as far as it can be read. Raises: UnknownConversation."""
        readable = [name for name in names if not self._is_aside(name)]
        kept = {n: (self._kept(n), LIVE if n in self._live else MARKED) for n in readable}
        return Past(self._files, kept)

    def head(self, name: str) -> Head:
        """What is known of one, marked ones included. Raises: UnknownConversation."""
        return self._kept(name).head

    def __contains__(self, name: object) -> bool:
        """Whether there is one of that name that is not being forgotten."""
        return name in self._live

    def __len__(self) -> int:
        """How many are not being forgotten."""
        return len(self._live)

    def values(self, start: int, most: int) -> list[ConversationValue]:
        """A part of all that are not being forgotten, last used first."""
        names = sorted(self._live, key=lambda name: self._live[name].head.used_us, reverse=True)
        return [self.value(name) for name in names[start : start + most]]

    def value(self, name: str) -> ConversationValue:
        """One as it is listed. Raises: UnknownConversation."""
        head = self._kept(name).head
        used_s = head.used_us / _SECOND_US
        expires_s = used_s + _HOUR_S * self.settings.anonymous_hours
        return ConversationValue(
            name=name,
            model=head.begin.model,
            dtype=head.begin.dtype,
            model_id=head.begin.model_id,
            anonymous=is_anonymous(name),
            created_s=head.begin.created_us / _SECOND_US,
            used_s=used_s,
            num_tokens=head.num_tokens,
            num_messages=head.num_messages,
            tip=head.tip,
            visibility=(head.visibility if head.num_tokens else Visibility.PRIVATE).word,
            running=name in self._running,
            expires_s=expires_s if is_anonymous(name) else None,
        )

    async def read(self, name: str) -> Replay:
        """Its tokens and messages.

        Raises: UnknownConversation, StoreBroken (damaged, or set aside), ConversationBusy (its
            first turn is under way).
        """
        kept = self._kept(name)
        suffix = LIVE if name in self._live else MARKED
        try:
            return await trio.to_thread.run_sync(self._files.read, name, kept, suffix)
        except UnknownConversation:
            self._drop(name, kept)
            raise

    # -- making them longer -----------------------------------------------------------------

    def new_name(self) -> str:
        """A name for one without."""
        while True:
            name = f"@{secrets.token_hex(4)}"
            if name not in self._live and name not in self._busy and name not in self._marked:
                return name

    def check_new(self, name: str) -> None:
        """Raises: BadRequest (no name, or taken), ConversationBusy (of one being forgotten)."""
        if not is_name(name) or is_anonymous(name):
            raise BadRequest(
                f"no conversation can be called {name[:80]!r}",
                hint="letters, digits, . _ - and 64 at most; a letter or a digit first",
            )
        if name in self._live:
            raise BadRequest(f"there is a conversation {name} already", hint="gliad conversations")
        if len(self._live) >= _MAX_CONVERSATIONS:
            raise QuotaExceeded(
                f"there are {len(self._live):,} conversations, no more can be",
                hint="gliad forget NAME",
            )
        if name in self._marked:
            raise _busy(name, "is being forgotten")

    @contextmanager
    def answering(self, name: str, running: Running) -> Iterator[None]:
        """Be the one that answers in it. Raises: ConversationBusy."""
        with self._occupied(name, "is being answered in"):
            self._running[name] = running
            try:
                yield
            finally:
                del self._running[name]

    async def create(self, name: str, records: Sequence[Record], *, marked: bool = False) -> None:
        """Make one of records; the caller is at its name.

        Args:
            marked: it is to be forgotten at once.
        Raises: StoreFull, StoreBroken.
        """
        suffix = MARKED if marked else LIVE
        kept = await trio.to_thread.run_sync(self._files.create, name, records, suffix)
        (self._marked if marked else self._live)[name] = kept
        self.on_change()

    async def append(self, name: str, head: Head, turn: Turn) -> None:
        """Write a turn, after which it is `head`; the caller is at it.

        Raises: UnknownConversation, StoreFull, StoreBroken, QuotaExceeded.
        """
        kept = self._live.get(name)
        if kept is None:
            raise _unknown(name)
        try:
            grown = await trio.to_thread.run_sync(self._files.append, name, kept, head, turn)
        except UnknownConversation:
            self._drop(name, kept)
            raise
        self._live[name] = grown
        self.on_change()

    @contextmanager
    def making(self, name: str) -> Iterator[None]:
        """Be the one that makes a new one. Raises: BadRequest, ConversationBusy."""
        self.check_new(name)
        with self._occupied(name, "is being made"):
            yield

    # -- forgetting -------------------------------------------------------------------------

    def expired(self, now_s: float) -> list[str]:
        """Anonymous ones that are to be forgotten: too old, or too many; oldest first."""
        anonymous = [name for name in self._live if is_anonymous(name) and name not in self._busy]
        anonymous.sort(key=lambda name: self._live[name].head.used_us)
        before_us = (now_s - _HOUR_S * self.settings.anonymous_hours) * _SECOND_US
        num_bytes = sum(self._live[name].size_bytes for name in anonymous)
        found: list[str] = []
        for name in anonymous:
            kept = self._live[name]
            is_one_too_many = (
                len(anonymous) - len(found) > self.settings.max_anonymous
                or num_bytes > _MAX_ANONYMOUS_BYTES
            )
            if kept.head.used_us > before_us and not is_one_too_many:
                break
            found.append(name)
            num_bytes -= kept.size_bytes
        return found

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Keep everybody else away from it, or from what was set aside of it.

        Raises: ConversationBusy, UnknownConversation.
        """
        if not self._is_aside(name):
            self._kept(name)
        with self._occupied(name, "is being forgotten"):
            yield

    async def tokens_of(self, name: str) -> tuple[int, ...]:
        """Its log as it is now. Raises: UnknownConversation, StoreBroken."""
        return unpack_tokens(bytes((await self.read(name)).tokens))

    def tips_of(self, name: str) -> tuple[WindowId, ...]:
        """Every tip it ever had, oldest first. Raises: UnknownConversation."""
        return self.head(name).tips

    async def mark(self, name: str) -> None:
        """From now on it is to be forgotten, whatever happens; the caller holds it.

        One that was set aside is read by nobody: there is nothing to go on with.
        Raises: UnknownConversation, StoreBroken.
        """
        kept = self._live.get(name)
        if kept is not None:
            await trio.to_thread.run_sync(self._files.mark, name)
            self._live.pop(name, None)  # who read meanwhile may have missed its file, and said so
            self._marked[name] = kept
            self.on_change()

    async def remove(self, name: str) -> None:
        """Overwrite and remove the files of one that is marked or set aside; the caller holds it.

        Raises: StoreBroken.
        """
        await trio.to_thread.run_sync(self._files.erase, name)
        self._marked.pop(name, None)
        self._aside.discard(name)
        self.on_change()

    def references(self) -> list[Reference]:
        """Everything that refers to windows now, but for what is being forgotten."""
        found = []
        for name, kept in self._live.items():
            running = self._running.get(name)
            tokens = running.tokens if running is not None else None
            found.append(Reference(name, kept.head.tips, kept.head.begin.model_id, tokens))
        for name, running in self._running.items():
            if name not in self._live:
                found.append(Reference(name, (), running.model_id, running.tokens))
        return found

    # -- inside -----------------------------------------------------------------------------

    def _kept(self, name: str) -> Kept:
        kept = self._live.get(name) or self._marked.get(name)
        if kept is not None:
            return kept
        if name in self._busy:
            raise _busy(name, self._busy[name])
        if name in self._aside:
            raise StoreBroken(
                f"{name} could not be read and was set aside",
                hint=f"gliad forget {name} removes it for good",
            )
        raise _unknown(name)

    def _is_aside(self, name: str) -> bool:
        """Whether all there is of it are files that were set aside."""
        return name in self._aside and name not in self._live and name not in self._marked

    def _drop(self, name: str, kept: Kept) -> None:
        """Its file is gone."""
        if self._live.get(name) is kept:
            del self._live[name]
            self.on_change()

    @contextmanager
    def _occupied(self, name: str, why: str) -> Iterator[None]:
        if name in self._busy:
            raise _busy(name, self._busy[name])
        self._busy[name] = why
        try:
            yield
        finally:
            del self._busy[name]
            if name in self._marked:
                self.on_change()


def _busy(name: str, why: str) -> ConversationBusy:
    return ConversationBusy(
        f"{name} {why}", hint="ask again when that has ended: gliad ps shows what runs"
    )


def _unknown(name: str) -> UnknownConversation:
    return UnknownConversation(
        f"there is no conversation {name[:80]!r}", hint="gliad conversations"
    )
