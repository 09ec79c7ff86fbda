"""Why a prompt is cached as far as it is, and no further. Changes nothing, not even an order.

What is compared: the conversations used last, so many of each kind; what older ones say is
not looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import trio

from daemon.attachments import Attachment, Layout
from daemon.parts import Parts
from daemon.past import Past
from daemon.records import Records
from daemon.turns import asked_head
from glia.errors import BadRequest, StoreBroken
from glia.graph.chain import longest_chain, prefix_keys
from glia.graph.conversation import Head
from glia.graph.domain import Salt, domain_of
from glia.graph.ids import ModelId, WindowId
from glia.graph.manifest import DTYPES
from glia.graph.tokens import TOKEN_BYTES, pack_tokens, unpack_tokens
from glia.local.messages import Explain, ExplainReply
from glia.local.values import ReasonValue
from glia.store.foreign import Looked

_MOST = 256  # conversations of this model, and as many of others
_END = -1
_log = logging.getLogger("gliad.explaining")


async def explain(parts: Parts, call: Explain) -> ExplainReply:
    """The reply. Raises: UnknownModel, ManifestError, BadRequest."""
    model = await trio.to_thread.run_sync(parts.registry.get, call.model)
    dtype = call.dtype or model.manifest.dtype
    if dtype not in DTYPES:
        raise BadRequest(f"no dtype {dtype[:40]!r}", hint=f"one of: {', '.join(DTYPES)}")
    required = parts.config.network.exact == "required"
    exact = required if call.exact is None else call.exact
    attachments = parts.attachments.all()
    own = parts.attachments.last(call.model, dtype)
    past = _last_used(parts, own.model_id if own is not None else None, call.model)
    head = await asked_head(parts.conversations, call)
    return await trio.to_thread.run_sync(
        lambda: _Explanation(
            parts.memory.records, attachments, past, own, call, exact, head, _why_unused(parts)
        ).reply()
    )


def _why_unused(parts: Parts) -> Callable[[WindowId], str]:
    """Whether a condemned window is so for itself, for a proven liar, or for the user's word."""
    if parts.peering is None:
        return lambda _: "differs"
    foreign = parts.peering.published.foreign

    def why(window_id: WindowId) -> str:
        origin = foreign.origins([window_id]).get(window_id)
        if origin is None or origin.looked is not Looked.CONDEMNED:
            return "never"
        return "differs" if origin.signer is None else "attested"

    return why


def _last_used(parts: Parts, model_id: ModelId | None, model: str) -> tuple[Past, Past]:
    """Conversations of this model, and others, those used last first."""
    conversations = parts.conversations
    heads = {name: conversations.head(name) for name in conversations.names()}
    names = sorted(heads, key=lambda name: heads[name].used_us, reverse=True)

    def is_same(name: str) -> bool:
        begin = heads[name].begin
        return begin.model == model if model_id is None else begin.model_id == model_id

    same = [name for name in names if is_same(name)]
    others = [name for name in names if not is_same(name)]
    return conversations.past(same[:_MOST]), conversations.past(others[:_MOST])


@dataclass(frozen=True)
class _Likest:
    """The conversation that goes on with a prompt the furthest.

    Attributes:
        num_tokens: leading tokens that both have.
        found: the token it has then, -1 where it ends.
    """

    name: str
    num_tokens: int
    found: int


class _Explanation:
    """One prompt, looked at in a worker thread."""

    def __init__(
        self,
        records: Records,
        attachments: Sequence[Attachment],
        past: tuple[Past, Past],
        own: Attachment | None,
        call: Explain,
        exact: bool,
        head: Head,
        why_unused: Callable[[WindowId], str],
    ) -> None:
        self._why_unused = why_unused
        self._head = head
        self._records = records
        self._attachments = attachments
        self._same, self._others = past
        self._own = own
        self._tokens = call.tokens
        self._call_id = call.id
        self._exact = exact

    def reply(self) -> ExplainReply:
        own = self._own
        chain = []
        if own is not None:
            binding = own.binding
            chain = longest_chain(
                binding.model_id,
                binding.profile,
                self._tokens[:-1],  # the last token is always computed
                self._records.find,
                self._records.get_now,
                binding.exact_classes,
                others=not self._exact and binding.takes_others,
                salt=self._salt(own),
            )
        num_matched = chain[-1].end if chain else 0
        tip = chain[-1].window_id if chain else None
        return ExplainReply(self._call_id, num_matched, self._reasons(num_matched), tip)

    def _reasons(self, start: int) -> list[ReasonValue]:
        likest = _likest(self._same, self._tokens)
        if self._own is None:
            return [*_difference(likest, self._tokens)] or [ReasonValue("new", start)]
        end = start + self._own.layout.block_size
        if end >= len(self._tokens):
            return [ReasonValue("last", start)]
        reasons = [*self._stored_otherwise(self._own, start, end), *self._in_profiles(start)]
        if not reasons and likest is not None and likest.num_tokens >= end:
            reasons.append(ReasonValue("evicted", start, likest.name))
        if not reasons:
            reasons += self._of_models(start, end)
        if likest is not None and likest.num_tokens >= start:
            reasons += _difference(likest, self._tokens)
        return reasons or [ReasonValue("new", start)]

    def _stored_otherwise(self, own: Attachment, start: int, end: int) -> Iterator[ReasonValue]:
        """The next window is there, but of another class, or set aside."""
        classes: set[str] = set()
        unused: set[str] = set()
        is_bad = False
        for window_id in self._found(own, end):
            record = self._records.get_now(window_id)
            if window_id in self._records.hidden.condemned:
                unused.add(self._why_unused(window_id))
            elif record is None:
                is_bad = True
            elif record.numerics_class not in own.binding.exact_classes:
                classes.add(record.numerics_class)
        for why in sorted(unused):
            yield ReasonValue("quarantined", start, detail=why)
        if is_bad:
            yield ReasonValue("quarantined", start)
        for numerics_class in sorted(classes):
            yield ReasonValue("class", start, detail=numerics_class)

    def _in_profiles(self, start: int) -> Iterator[ReasonValue]:
        """The next tokens are there under another profile of this model."""
        for other in self._others_of(same_model=True):
            if self._found(other, _end_of_window(start, other)):
                profile = other.binding.profile
                detail = f"block_size {profile.block_size}, {profile.scheme.word}"
                yield ReasonValue("profile", start, detail=detail)

    def _of_models(self, start: int, end: int) -> Iterator[ReasonValue]:
        """The next tokens are there for another model, or said with one."""
        likest = _likest(self._others, self._tokens)
        said_with = None
        if likest is not None and likest.num_tokens >= end:
            said_with = self._others.model_id(likest.name)
            yield ReasonValue("model", start, likest.name, detail=said_with.hex())
        for other in self._others_of(same_model=False):
            is_new = other.model_id != said_with
            if is_new and self._found(other, _end_of_window(start, other)):
                yield ReasonValue("model", start, detail=other.model_id.hex())

    def _others_of(self, *, same_model: bool) -> list[Attachment]:
        """One attachment for each other model and profile."""
        own = self._own
        if own is None:
            return []
        found: dict[tuple[ModelId, Layout], Attachment] = {}
        for other in self._attachments:
            if (other.model_id == own.model_id) is same_model and (
                not same_model or other.layout != own.layout
            ):
                found.setdefault((other.model_id, other.layout), other)
        return list(found.values())

    def _salt(self, attachment: Attachment) -> Salt | None:
        """Of the group's domain that begins in the prompt. Raises: BadRequest."""
        head, size = self._head, attachment.layout.block_size
        domains = self._records.domains
        domain = domain_of(head.group, head.num_public, size)
        if domain is None or not domains.has(domain.group):
            return None
        return domains.salt(domain)

    def _found(self, attachment: Attachment, end: int) -> Sequence[WindowId]:
        """Windows stored under the first `end` tokens, whole windows of the attachment's."""
        if end > len(self._tokens):
            return ()
        binding = attachment.binding
        tokens, salt = self._tokens[:end], self._salt(attachment)
        keys = prefix_keys(binding.model_id, binding.profile, tokens, salt)
        return tuple(self._records.find(keys[-1])) if keys else ()


def _end_of_window(start: int, attachment: Attachment) -> int:
    """Where the window ends that has token `start`."""
    size = attachment.layout.block_size
    return (start // size + 1) * size


def _difference(likest: _Likest | None, tokens: Sequence[int]) -> Iterator[ReasonValue]:
    if likest is not None and likest.num_tokens < len(tokens):
        position = likest.num_tokens
        yield ReasonValue("differs", position, likest.name, likest.found, tokens[position])


def _likest(past: Past, tokens: Sequence[int]) -> _Likest | None:
    """Of several the one that was used last; None where not even a first token is the same."""
    packed, best = pack_tokens(tokens), None
    for name in past.kept:
        try:
            log = past.log(name)
        except StoreBroken as error:
            _log.warning("%s", error)
            continue
        num_tokens = _num_common(log, packed)
        if num_tokens > (best.num_tokens if best is not None else 0):
            found = unpack_tokens(log[num_tokens * TOKEN_BYTES :][:TOKEN_BYTES])
            best = _Likest(name, num_tokens, found[0] if found else _END)
    return best


def _num_common(one: bytes, other: bytes) -> int:
    """How many leading tokens are the same: halving, so that most is compared in C."""
    low, high = 0, min(len(one), len(other)) // TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if one[: middle * TOKEN_BYTES] == other[: middle * TOKEN_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low
