"""The memory calls: what an engine (ours or another) asks of the tiers below its L0."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from glia.local.messages.base import Call, Reply
from glia.local.values import (
    Count,
    DomainValue,
    FindingValue,
    Label,
    Name,
    ProfileValue,
    Tokens,
)


class Attach(Call, frozen=True):
    """Bind this connection to a model and profile; the memory calls below refer to it.

    `serves`: name and dtype of the model this engine answers Run calls for; empty for a
    guest that only uses the memory calls.
    """

    model_id: Name
    profile: ProfileValue
    numerics_class: Label
    serves: Label = ""
    dtype: Label = ""
    context_tokens: Count = 0
    files_dir: str = ""


class Staging(Call, frozen=True):
    """Ask for this connection's staging area; the reply (Done) carries its descriptor.

    Asking again replaces it.
    """

    size_bytes: Count


class Match(Call, frozen=True):
    """The longest known chain of whole windows for these tokens.

    Changes no lease and no LRU order.

    exact: of the own numerics class only; else of any, the own one on a tie.
    domain: of the group whose windows are looked for from there on. Raises NotFound where
        it is none of this node's.
    coming: also windows that peers are sending. Whether they come is not certain; whoever leases
        them asks again while `Leased.late` says so.
    """

    tokens: Tokens
    exact: bool = True
    domain: DomainValue | None = None
    coming: bool = False


class Matched(Reply, frozen=True):
    windows: list[Name]


class Known(Call, frozen=True):
    """Which of these windows are whole in L1 or L2. Changes no lease and no LRU order.

    Reply: Matched, of those.
    """

    windows: Annotated[list[Name], Meta(max_length=16384)]


class Adopt(Call, frozen=True):
    """Have windows that peers sent ahead become windows of L1, behind the one they follow.

    `prev`: that window, None at the start; it must be known here. `tokens`: what comes behind
    it; windows of other tokens stay where they are. Reply: Matched, of those that came.
    """

    prev: Name | None
    tokens: Tokens


class Lease(Call, frozen=True):
    """Pin windows in L1, loading from L2 what is not there.

    The leading windows that could be had are leased; a hole ends the list.
    """

    windows: Annotated[list[Name], Meta(max_length=4096)]


class Leased(Reply, frozen=True):
    """`offsets`: u64 little-endian, one per layer of each window: where the *particle* starts
    in the arena (the payload follows its header). `tiers`: one digit a window, 1 = was in L1,
    2 = came from L2, 3 = came from a peer. Shorter than asked where a window could not be had.

    `checks`: one digit a window: 1 = it came from a peer, and whoever leases it must look at it
    before using it, and say so (Examined), 2 = the same, of class canonical, 0 = it need not.

    `late`: the next window is on its way. Gliad has waited for it a moment; ask again.
    """

    lease: Count
    offsets: bytes
    tiers: bytes
    checks: bytes
    late: bool = False


class Examined(Call, frozen=True):
    """What came of looking at windows that a peer sent. What is not clean is known no more."""

    found: Annotated[list[FindingValue], Meta(max_length=4096)]


class ExaminedReply(Reply, frozen=True):
    """`audit`: those of them that are to be computed again, too, before they are used."""

    audit: list[Name]


class Release(Call, frozen=True):
    """Give a lease back. Its windows may be evicted from now on."""

    lease: Count


class Seal(Call, frozen=True):
    """Name full windows whose raw payloads stand in staging.

    Layout at `offset`: [windows][layers] payloads, each in spec/3-block.md's form, no gaps.
    `prev`: the window before them, None at the start. `num_steps`: decode steps run since
    this connection's last Seal (for the hot bias). Blocks whose bytes are known already
    are referenced, not kept twice. The staging bytes may be reused after the reply.
    `domain`: of the group whose they are, from its start on; the one that a Match was for.
    """

    prev: Name | None
    position_start: Count
    tokens: Tokens
    offset: Count
    num_steps: Count = 0
    domain: DomainValue | None = None


class Sealed(Reply, frozen=True):
    windows: list[Name]
    num_known: int  # how many of them were known before


class Flush(Call, frozen=True):
    """Replies when these windows are durable in L2.

    Raises StoreFull where they cannot be.
    """

    windows: list[Name]
