"""Values that messages of the local API carry (daemon/spec/local-api.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from glia.graph.domain import Domain
from glia.graph.group import GroupId
from glia.graph.ids import MIN_START_BYTES

Name = Annotated[bytes, Meta(min_length=32, max_length=32)]
NameStart = Annotated[bytes, Meta(min_length=MIN_START_BYTES, max_length=32)]
Tokens = list[Annotated[int, Meta(ge=0, le=2**32 - 1)]]
Label = Annotated[str, Meta(max_length=256)]
Count = Annotated[int, Meta(ge=0, le=2**53)]


class DomainValue(Struct, frozen=True, array_like=True):
    """Where the domain of a group begins in a request's tokens: at a window of `start`.

    end: up to where the group may read it; None: all that follows.
    """

    group: Name
    start: Count
    end: Count | None = None

    @classmethod
    def of(cls, domain: Domain | None) -> DomainValue | None:
        """As it travels."""
        return None if domain is None else cls(domain.group, domain.start, domain.end)

    def domain(self) -> Domain:
        """As it is thought of."""
        return Domain(GroupId(self.group), self.start, self.end)


class ShapeValue(Struct, frozen=True, array_like=True):
    """A layer that owns K/V."""

    layer: Count
    kv_heads: Count
    head_dim: Count


class ProfileValue(Struct, frozen=True, array_like=True):
    """A profile, as the numbers of spec/2-profile.md."""

    block_size: Count
    scheme: Count
    mode: Count
    layers: list[ShapeValue]


class TierValue(Struct, frozen=True):
    """One tier in `status`: bytes, windows and counters since start."""

    used_bytes: int = 0
    cap_bytes: int = 0
    windows: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    quarantined: int = 0


class EngineValue(Struct, frozen=True):
    """One engine in `status`. `state`: starting, ready, running, failed."""

    model: str
    dtype: str
    state: str
    pid: int | None = None
    model_id: str | None = None
    numerics_class: str | None = None
    num_running: int = 0
    num_waiting: int = 0
    num_restarts: int = 0
    error: str | None = None
    loading: str | None = None  # while it starts: what is being done, `done` of `total`
    done: int = 0
    total: int = 0
    memory_bytes: int = 0  # what it is counted with in engine.memory
    idle_s: float = 0.0  # since its last request ended


class ModelValue(Struct, frozen=True):
    """One known model in `models`."""

    name: str
    source: str
    manifest: str
    model_type: str
    dtype: str
    block_size: int
    kv_quant_scheme: str
    position_anchor_mode: str
    model_id: str | None = None
    context_tokens: int | None = None
    files_dir: str | None = None


class WindowValue(Struct, frozen=True):
    """One window in `chain`."""

    window: Name
    position_start: int
    tokens: list[int]
    blocks: list[Name]
    model_id: Name
    numerics_class: str


class SamplingValue(Struct, frozen=True, array_like=True):
    """How the next token is chosen. temperature 0 is greedy; seed makes the rest repeatable."""

    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 0.0
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, Meta(ge=0, le=2**20)] = 0
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


class ChosenValue(Struct, frozen=True, array_like=True):
    """Tokens `start` to `end` of a log, and how they were chosen."""

    start: Count
    end: Count
    sampling: SamplingValue


class UnitValue(Struct, frozen=True, array_like=True):
    """A window of a chain that is run again, or the tokens behind its last one.

    at: its place. tokens: its own. chosen: spans that what follows from them lies in.
    """

    at: Count
    tokens: Annotated[Tokens, Meta(min_length=1, max_length=2**16)]
    chosen: list[ChosenValue]


class RerunValue(Struct, frozen=True, array_like=True):
    """What came of it.

    equal: whether its K and V are, bit by bit, what is claimed; None behind the chain.
    told: what would be chosen, at each position of `chosen` that follows from its tokens.
    """

    equal: bool | None
    told: list[int]


Compared = Literal["equal", "clean", "differs", "other", "false", ""]


class SampledValue(Struct, frozen=True):
    """What came of one of a log's windows, or of the tokens behind the last.

    at: its place. own: whether it is of the class that it was computed in now.
    verdict: equal: bit by bit; those of FindingValue; "" where nothing is there to compare.
    num_chosen: tokens that were chosen from what it says; differing: those that would not be.
    """

    at: Count
    own: bool
    verdict: Compared
    num_chosen: Count
    differing: list[Count]


class CachedValue(Struct, frozen=True):
    """Prompt tokens by the tier they were found in."""

    l0: int = 0
    l1: int = 0
    l2: int = 0
    peers: int = 0


class UsageValue(Struct, frozen=True):
    """cached.l0 + l1 + l2 + peers + computed = prompt_tokens."""

    prompt_tokens: int
    completion_tokens: int
    cached: CachedValue
    computed: int


class SourceValue(Struct, frozen=True):
    """What a peer gave of a prompt: blocks that hold, their bytes; `end`: how that ended."""

    peer: str
    blocks: int
    bytes: int
    end: str


class FetchedValue(Struct, frozen=True):
    """What peers had of a prompt.

    num_tokens: of whole windows that came and were used.
    num_met: of these, tokens that came while the engine computed those before them.
    why: why no more was fetched, "" where all that others may be asked for is here: private (no
        whole window of it is public, or a group's), offline, quick (computing takes no longer
        than asking), nobody (has more), unheard (who was asked did not answer in time), untrusted
        (what peers have is attested by neurons whose word is not taken), slow (computing is
        sooner), met (what is before them was computed in the same time), differs (what was
        computed is not what the chain continues), lost (whoever had it is gone, or lied), room
        (L1 has none), disk (what comes cannot be written), broken (the chain is).
    """

    num_tokens: int
    sources: list[SourceValue]
    why: str
    num_met: int = 0


class MessageValue(Struct, frozen=True):
    """One message of a conversation: tokens `start` to `end` of its log.

    role: system, user, assistant, tool, or "" for text without a template.
    content: its text; None where that is what the tokens say (an answer).
    visibility: private, public, group:NAME, or aggregate, which is nobody's; never looser than
        the message before it.
    is_tainted: it is an answer that used K/V of peers which does not hold, as was found since.
    """

    role: Annotated[str, Meta(max_length=64)]
    content: str | None
    start: Count
    end: Count
    visibility: Annotated[str, Meta(max_length=80)] = "private"
    is_tainted: bool = False


class TurnValue(Struct, frozen=True):
    """What a Generate means to a conversation.

    conversation: its name; "" records an anonymous one, under a name gliad makes up.
    keep: so many leading tokens of the prompt are the conversation's already; what it has
        beyond them is dropped from the log.
    messages: those that the prompt adds, in order, from `keep` to the prompt's end. The
        answer is added by gliad, as a message of role assistant.
    create: whether the conversation is to be made: None if need be, True must, False must not.
    """

    conversation: Label = ""
    keep: Count = 0
    messages: list[MessageValue] = []
    create: bool | None = None


class ConversationValue(Struct, frozen=True):
    """One conversation in a listing. Times are seconds since 1970, UTC.

    visibility: that of its last message: the strictest.
    tip: id of its last full window, None under one.
    expires_s: when an anonymous one will be forgotten.
    num_tainted: answers in it that used K/V of peers which does not hold, as was found since.
    moved_to: neuron of the Body that has it now; "" while it may go on here.
    """

    name: str
    model: str
    dtype: str
    model_id: Name
    anonymous: bool
    created_s: float
    used_s: float
    num_tokens: int
    num_messages: int
    tip: Name | None = None
    visibility: str = "private"
    running: bool = False
    expires_s: float | None = None
    num_tainted: int = 0
    moved_to: str = ""


class RestoredValue(Struct, frozen=True):
    """A conversation of a checkpoint.

    what: new, goes_on (it says more than what was here), same, or newer (what is here says
        more, and stays).
    """

    name: str
    what: str
    model: str
    model_id: Name
    num_tokens: int
    num_messages: int
    tip: Name | None = None


class MovedValue(Struct, frozen=True):
    """What a Body knows of its Soul's moves.

    epoch, sequence: of the last move and the last checkpoint of it that is known of.
    lease_s: until when it may go on by itself, 0: for ever; seconds since 1970, UTC.
    num_moved: conversations that other Bodies have; the last went to that of neuron `holder`, at
        `moved_s`.
    """

    epoch: int
    sequence: int
    lease_s: float
    num_moved: int
    holder: str
    moved_s: float


class RunValue(Struct, frozen=True):
    """One request in `ps`. `state`: waiting, loading, running, or how it ended.

    cached and computed count prompt tokens and add up to prompt_tokens once it has ended;
    while it runs they are what is known so far.
    """

    number: int
    model: str
    dtype: str
    conversation: str
    state: str
    started_s: float
    duration_ms: float
    prompt_tokens: int
    completion_tokens: int = 0
    cached: CachedValue = CachedValue()
    computed: int = 0
    ttft_ms: float | None = None
    tokens_per_s: float | None = None
    error: str | None = None
    numerics_class: str = ""  # once an engine has it


class ReasonValue(Struct, frozen=True):
    """Why a prefix is known no further, one finding.

    kind: differs (a conversation has other tokens from `position` on), model (the tokens are
        known under another model_id), profile, class, evicted, quarantined, new (nothing that
        is known goes on like this), last (the last token is always computed).
    position: the first token that this is about.
    conversation: where it was seen, "" if in none.
    found, given: the differing tokens, -1 where that is the end.
    detail: the other model_id, profile or class, where that is the reason; of quarantined
        "" where the bytes are not the named ones, "attested" where a proven liar's word is behind
        them, "never" where the user does not take it, "differs" where they did not hold.
    """

    kind: str
    position: int
    conversation: str = ""
    found: int = -1
    given: int = -1
    detail: str = ""


class FindingValue(Struct, frozen=True):
    """What came of looking at one window.

    audit: it was computed again; else it was checked before its first use.
    verdict: clean; false: nobody computed this honestly; other: the arithmetic of another
        machine; differs: too far off, and nothing says how far is honest for this model.
    what: rows, norms, layer 0, all layers, or no reference.
    layer, error, limit: where it was the furthest off for its limit, and by how much, relative.
    """

    window: Name
    audit: bool
    verdict: Literal["clean", "other", "false", "differs"]
    what: Annotated[str, Meta(max_length=32)]
    layer: Count = 0
    error: float = 0.0
    limit: float = 0.0
