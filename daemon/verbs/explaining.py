"""Why a prompt is cached as far as it is, and no further: in sentences, and for --json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daemon import show
from glia.local.messages import ExplainReply
from glia.local.values import FetchedValue, ReasonValue
from glia.model.tokenizer import Tokenizer

_CONTEXT_TOKENS = 8
_END = -1


def explanation_lines(
    reply: ExplainReply, tokens: Sequence[int], tokenizer: Tokenizer | None
) -> list[str]:
    """A sentence for how far, then one for each reason."""
    known = f"{reply.num_matched:,} of {len(tokens):,} prompt tokens are known here"
    reasons = [_sentence(reason, tokens, tokenizer) for reason in reply.reasons]
    return [f"{known}, in whole windows", *(f"  {reason}" for reason in reasons)]


def explanation(
    reply: ExplainReply, tokens: Sequence[int], tokenizer: Tokenizer | None
) -> dict[str, Any]:
    """The same for programs: the reasons as they came, each with its sentence."""
    return {
        "num_matched": reply.num_matched,
        "reasons": [
            {
                **{name: getattr(reason, name) for name in reason.__struct_fields__},
                "text": _sentence(reason, tokens, tokenizer),
            }
            for reason in reply.reasons
        ],
    }


_WHY_NOT = {
    "private": "no whole window of it is public: no peer was asked",
    "offline": "this node has no network just now",
    "quick": "computing takes no longer than asking peers",
    "nobody": "no peer that was asked has more of it, signed",
    "unheard": "the peers that were asked did not answer in time",
    "untrusted": "peers have it, signed by neurons whose word is not taken here: gliad where shows "
    "whose; gliad peers add MULTIADDR, or [network] accept in glia.toml, takes it",
    "slow": "computing is sooner than what peers send",
    "met": "that took no longer than the others took to come",
    "differs": "the chain that peers have continues other K and V than this model gives",
    "lost": "the peers that had more are gone, or sent what it is not",
    "room": "L1 has no room",
    "disk": "what peers send cannot be written: gliad doctor says more",
    "broken": "the chain that peers have is broken",
}
_UNUSED = {
    "": "what was stored was damaged and has been set aside",
    "attested": "what is stored is attested by who was caught lying, or follows that, and is not "
    "used: gliad trust",
    "differs": "what is stored did not hold when it was looked at, or follows what did not, and "
    "is not used; nobody is accused of it",
    "never": "what is stored is attested by who you said is never to be trusted, or follows that, "
    "and is not used: gliad trust NEURON default takes it again",
}
_ENDS = {"done": "", "lacking": ", then had no more"}


def fetched_lines(fetched: FetchedValue | None, num_computed: int) -> list[str]:
    """What peers gave for an answer, what was computed, and why."""
    if fetched is None:
        return []
    met = f", {fetched.num_met:,} of them while those before were computed"
    lines = [
        f"{fetched.num_tokens:,} prompt tokens came from peers{met if fetched.num_met else ''}"
    ]
    for each in fetched.sources:
        gave = f"{each.blocks:,} blocks, {show.size(each.bytes)}"
        lines.append(f"  peer {each.peer}: {gave}{_ENDS.get(each.end, f', then {each.end}')}")
    why = _WHY_NOT.get(fetched.why, fetched.why) or "they are no whole window that is public"
    return [*lines, f"  {num_computed:,} were computed: {why}"]


def _sentence(reason: ReasonValue, tokens: Sequence[int], tokenizer: Tokenizer | None) -> str:
    at = f"from token {reason.position:,} on"
    match reason.kind:
        case "differs":
            return _difference(reason, tokens, tokenizer)
        case "model":
            return f"{at} it is known for another model only (model_id {reason.detail[:12]})"
        case "profile":
            return f"{at} it is stored in another form only ({reason.detail})"
        case "class":
            return f"{at} it was computed in another way only ({reason.detail}), which is not used"
        case "evicted":
            return f"{at} it was known in {_where(reason)} and has been evicted since"
        case "quarantined" if reason.detail in _UNUSED:
            return f"{at} {_UNUSED[reason.detail]}"
        case "new":
            return f"{at} it is new: nothing that is known here goes on like this"
        case "last":
            return f"{at} it is no whole window before the last token, which is always computed"
        case _:
            return f"{at}: {reason.kind} {reason.detail}".rstrip()


def _difference(reason: ReasonValue, tokens: Sequence[int], tokenizer: Tokenizer | None) -> str:
    before = _context(tokens, reason.position, tokenizer)
    after = f", after {before}" if before else ""
    here = _shown(reason.given, tokenizer)
    if reason.found == _END:
        return f"{_where(reason)} ends before token {reason.position:,}, here {here}{after}"
    there = _shown(reason.found, tokenizer)
    where = f"token {reason.position:,} differs from {_where(reason)}"
    return f"{where}: there {there}, here {here}{after}"


def _where(reason: ReasonValue) -> str:
    return f"conversation {reason.conversation}" if reason.conversation else "what is known here"


def _shown(token: int, tokenizer: Tokenizer | None) -> str:
    if token == _END:
        return "it ends"
    text = tokenizer.decode([token], skip_special=False) if tokenizer else ""
    return repr(text) if text else f"token id {token}"


def _context(tokens: Sequence[int], position: int, tokenizer: Tokenizer | None) -> str:
    """The text that leads to a token."""
    before = tokens[max(0, position - _CONTEXT_TOKENS) : position]
    if tokenizer is None or not before:
        return ""
    return repr(tokenizer.decode(before, skip_special=False))
