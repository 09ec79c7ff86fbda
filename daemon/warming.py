"""Windows of restored conversations come from the Body before, where it gives them.

All of this is beside answering: what did not come is computed from the tokens. Only windows of
the own numerics class are asked for, so the next token is the same whether they come or not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import trio

from daemon.attachments import Attachments
from daemon.binding import Binding
from daemon.bringing_chain import Coming, bring
from daemon.conversations import Conversations
from daemon.memory import Memory
from daemon.peering import Peering
from daemon.soul_peers import SoulPeers
from daemon.telling import tell_nobody
from glia.errors import GliaError, PeerLost
from glia.graph.boundaries import asked, pairs
from glia.graph.chain import prefix_keys
from glia.graph.conversation import Begin
from glia.graph.domain import Salt
from glia.graph.ids import WindowId
from glia.graph.soul import Soul
from glia.graph.tokens import unpack_tokens
from p2p.asking import Asking, Keys
from p2p.bearing import SOUL_BLOCKS, SOUL_FIND, ask_bearer
from p2p.frames import Reader
from p2p.host import PeerId, Stream
from p2p.source import Provides
from p2p.walking import Question, Walk

_AGAIN_S = 5.0
_MAX_TRIES = 24  # of a Body that shows nothing: it may not have let go yet
_ASK_S = 20.0
_RESET_S = 1.0
_log = logging.getLogger("gliad.soul")


class _ToBody:
    """Streams to a Body, each of which begins with both proofs (daemon/transfer.py's Carries)."""

    salt: Salt | None = None

    def __init__(self, peering: Peering, soul: Soul) -> None:
        self.peering, self._soul = peering, soul

    async def open_blocks(self, peer: PeerId) -> Stream:
        """Raises: NetworkError."""
        return await self.open(peer, SOUL_BLOCKS)

    async def open(self, peer: PeerId, protocol: str) -> Stream:
        """Raises: NetworkError."""
        host = self.peering.host
        stream = await host.open(peer, protocol)
        try:
            await ask_bearer(stream, Reader(stream), host.peer_id, self._soul)
        except BaseException:
            with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
                await stream.reset()
            raise
        return stream


class Warming:
    """The one that asks for them."""

    def __init__(
        self,
        peering: Peering,
        souls: SoulPeers,
        conversations: Conversations,
        attachments: Attachments,
        memory: Memory,
    ) -> None:
        self._peering, self._souls, self._memory = peering, souls, memory
        self._conversations, self._attachments = conversations, attachments
        self._wanted: dict[str, int] = {}  # and how often it may be asked for in vain
        self._wake = trio.Event()

    def want(self, names: Iterable[str]) -> None:
        """These conversations were restored."""
        self._wanted.update(dict.fromkeys(names, _MAX_TRIES))
        self._wake.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            self._wake = trio.Event()
            if self._wanted:
                await self._warm()
            with trio.move_on_after(_AGAIN_S if self._wanted else float("inf")):
                await self._wake.wait()

    async def _warm(self) -> None:
        """What is wanted and can be had now; the rest is tried again."""
        soul = await self._souls.soul()
        bodies = [each.peer for each in self._souls.bodies(soul)] if soul is not None else []
        for name in [*self._wanted] if bodies else ():
            if name not in self._conversations:
                del self._wanted[name]
                continue
            binding = self._binding(self._conversations.head(name).begin)
            if binding is None or soul is None:
                continue
            self._wanted[name] -= 1
            for peer in bodies:
                if await self._came(name, binding, peer, soul) or not self._wanted[name]:
                    del self._wanted[name]
                    break

    async def _came(self, name: str, binding: Binding, peer: PeerId, soul: Soul) -> bool:
        """Whether nothing more is to be had of it. Never raises for a peer."""
        try:
            num = await self._bring(name, binding, peer, soul)
        except GliaError as error:
            _log.info("windows of %s do not come from %s: %s", name, peer, error)
        except Exception:
            _log.exception("windows of %s do not come from %s", name, peer)
        else:
            if num is not None:
                _log.info("%d windows of %s came from %s", num, name, peer)
                return True
        return False

    def _binding(self, begin: Begin) -> Binding | None:
        """What its model is loaded as; None where it never was here."""
        for each in reversed(self._attachments.all()):
            if (each.model_id, each.dtype) == (begin.model_id, begin.dtype):
                return each.binding
        return None

    async def _bring(self, name: str, binding: Binding, peer: PeerId, soul: Soul) -> int | None:
        """How many windows came; None where the peer shows none. Raises: GliaError."""
        memory, seen = self._memory, self._memory.hidden.num_changes
        replay = await self._conversations.read(name)
        tokens = unpack_tokens(bytes(replay.tokens))
        keys = await trio.to_thread.run_sync(prefix_keys, binding.model_id, binding.profile, tokens)
        here = await memory.longest(binding, tokens)
        wanted = pairs(keys, [num for num in asked(len(keys)) if num > len(here)])
        if not wanted:
            return 0
        way = _ToBody(self._peering, soul)
        classes = binding.exact_classes
        question = Question(
            binding.model_id, binding.profile, tokens, classes, held=memory.records.get
        )
        walk = await _walk(way, peer, question, wanted)
        if walk is None:
            return None
        if walk.records:
            coming = Coming(
                binding=binding,
                records=walk.records,
                base=walk.base,
                key=keys[walk.num_before - 1] if walk.num_before else binding.root_key,
                seen=seen,
                signers={},  # nobody attests them: that they are the Soul's is enough
                providers=[Provides(peer, walk.num_windows)],
            )
            await bring(way, self._peering.published.foreign, memory, coming, tell_nobody)
            await memory.flush([record.window_id for record in walk.records])
        return len(walk.records)


async def _walk(way: _ToBody, peer: PeerId, question: Question, keys: Keys) -> Walk | None:
    """The longest chain that a Body shows; None where it shows none. Raises: GliaError."""
    with trio.move_on_after(_ASK_S):
        stream = await way.open(peer, SOUL_FIND)
        try:
            asking = Asking(stream)
            found = await asking.find(question, keys, want_records=False)
            if not found:
                return None
            walk = Walk(question, WindowId(found[0].tip), found[0].num_windows)
            await asking.get_records(walk)
            return walk
        finally:
            with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
                await stream.reset()
    raise PeerLost(f"peer {peer} took longer than {_ASK_S:g} s")
