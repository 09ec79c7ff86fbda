"""Who has how much of a prompt: every peer that is known is asked; nothing is fetched."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from daemon.attachments import Attachments
from daemon.models_registry import ModelsRegistry
from daemon.peering import Peering
from daemon.searching import Wanted, wanted_of
from glia.errors import BadRequest, MalformedParticle, NetworkError, RemoteProtocolError
from glia.graph.boundaries import asked, between, pairs
from glia.graph.link import parse_link
from glia.graph.manifest import DTYPES
from glia.local.messages import Where, WhereReply
from glia.local.network_values import HolderValue
from p2p.asking import Asking
from p2p.host import PeerId
from p2p.messages import FIND, FoundChain
from p2p.walking import Question

_MAX_ASKED = 32
_TIMEOUT_S = 3.0
_RESET_S = 1.0
_log = logging.getLogger("gliad.where")


async def where(
    peering: Peering, attachments: Attachments, registry: ModelsRegistry, call: Where
) -> WhereReply:
    """The reply: of the model in its own dtype, or the one that is asked for.

    Raises: UnknownModel, ManifestError, BadRequest where it was never loaded so.
    """
    model = await trio.to_thread.run_sync(registry.get, call.model)
    dtype = call.dtype or model.manifest.dtype
    if dtype not in DTYPES:
        raise BadRequest(f"no dtype {dtype[:40]!r}", hint=f"one of: {', '.join(DTYPES)}")
    own = attachments.last(call.model, dtype)
    if own is None:
        flag = "" if call.dtype is None else f" --dtype {dtype}"
        raise BadRequest(
            f"{call.model} was never loaded here in {dtype}: what its prompts are called is not "
            "known",
            hint=f"gliad run {call.model}{flag} first",
        )
    wanted = wanted_of(own.binding, call.tokens, (), exact=False)
    peers = peering.peers_of(own.binding.model_id)[:_MAX_ASKED] if wanted.num_windows else []
    answers: dict[PeerId, FoundChain | None] = {}
    async with trio.open_nursery() as nursery:
        for peer in peers:
            nursery.start_soon(_ask, peering, wanted, peer, answers)
    size = own.binding.profile.block_size
    holders = [_holder(peer, chain, size) for peer, chain in answers.items() if chain is not None]
    holders.sort(key=lambda each: -each.num_tokens)
    return WhereReply(call.id, holders, len(peers), len(answers))


async def _ask(
    peering: Peering, wanted: Wanted, peer: PeerId, answers: dict[PeerId, FoundChain | None]
) -> None:
    with trio.move_on_after(_TIMEOUT_S):
        try:
            answers[peer] = await _best(peering, wanted, peer)
        except NetworkError as error:
            _log.debug("asking %s: %s", peer, error)
        except RemoteProtocolError as error:
            _log.info("asking %s: %s", peer, error)
            peering.lied(peer)


async def _best(peering: Peering, wanted: Wanted, peer: PeerId) -> FoundChain | None:
    """The longest that a peer says that it has."""
    stream = await peering.open_stream(peer, FIND)
    try:
        asking = Asking(stream)
        counts = asked(wanted.num_windows)
        best = await _longest(asking, wanted, counts)
        if best is not None:
            above = min((num for num in counts if num > best.num_windows), default=0)
            finer = between(best.num_windows, above) if above else []
            best = (await _longest(asking, wanted, finer) if finer else None) or best
        return best
    finally:
        with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
            await stream.reset()


async def _longest(asking: Asking, wanted: Wanted, counts: Sequence[int]) -> FoundChain | None:
    question = Question(wanted.binding.model_id, wanted.binding.profile)
    found = await asking.find(question, pairs(wanted.keys[1:], counts), want_records=False)
    return max(found, key=lambda each: each.num_windows, default=None)


def _holder(peer: PeerId, chain: FoundChain, block_size: int) -> HolderValue:
    signers: set[str] = set()
    for data in chain.links:
        try:
            signers.add(parse_link(data).signer.hex())
        except MalformedParticle:
            continue
    num_tokens = chain.num_windows * block_size
    return HolderValue(peer, num_tokens, chain.numerics_class, chain.tip, sorted(signers))
