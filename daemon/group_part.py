"""The windows of a log that members of its group may have: no private one behind them. Blocking.

They are found by walking back from a tip to where the group's domain begins, and held to the
log's own tokens; then along their ciphertexts in L2, which are what is published.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from daemon.reach import Salted
from glia.errors import NotFound
from glia.graph.chain import Get
from glia.graph.encrypted import alias_of
from glia.graph.group import GroupId
from glia.graph.ids import PrefixKey, WindowId, genesis_prefix, next_prefix, short
from glia.graph.spans import Base
from glia.graph.tokens import TOKEN_BYTES, pack_tokens
from glia.graph.window import WindowRecord
from glia.store.ciphertexts import Opened
from glia.store.group_rows import GroupWindow
from glia.store.vault import Vault


@dataclass(frozen=True)
class GroupPart:
    """Leading windows of a group's domain, as L2 has them.

    Attributes:
        records: of all of them, in order.
        sealed: the same, encrypted.
        base: what they follow; its key is salted.
        keys: the prefix key of each.
        hold_until_s: not announced before, seconds since 1970, where it is published now.
    """

    group: GroupId
    records: Sequence[WindowRecord]
    sealed: Sequence[Opened]
    base: Base
    keys: Sequence[PrefixKey]
    hold_until_s: int = 0

    def rows(self) -> list[GroupWindow]:
        """As they are published."""
        return [
            GroupWindow(
                name=each.name,
                num_windows=num,
                hold_until_s=self.hold_until_s,
                model_id=each.record.model_id,
                alias=alias_of(each.epoch, key),
                encoding=each.window.encoding,
            )
            for num, (each, key) in enumerate(
                zip(self.sealed, self.keys, strict=True), self.base.num_windows + 1
            )
        ]


def shared_windows(
    tips: Iterable[WindowId], tokens: bytes, group: GroupId, get: Get
) -> list[WindowRecord]:
    """The longest run from where the group's domain begins that one of these tips has.

    Args:
        tips: the likeliest first.
        tokens: leading ones that are public or the group's, packed.
        get: what is whole here.
    """
    best: list[WindowRecord] = []
    for tip in tips:
        found = _walk(tip, tokens, group, get)
        best = max(best, found, key=len)
        if best and TOKEN_BYTES * (best[-1].end + len(best[-1].tokens)) > len(tokens):
            break
    return best


def _walk(tip: WindowId, tokens: bytes, group: GroupId, get: Get) -> list[WindowRecord]:
    found: list[WindowRecord] = []
    name = tip
    while True:
        record = get(name)
        if record is None:
            return []  # evicted
        if TOKEN_BYTES * record.end <= len(tokens):
            if record.group != group:
                return []  # of nobody, or of those whose the log was before
            found.append(record)
        if record.root is not None or not record.position_start:
            break
        name = record.before
    if not found or found[-1].root is None:
        return []
    found.reverse()
    for num, each in enumerate(found):
        there = tokens[TOKEN_BYTES * each.position_start : TOKEN_BYTES * each.end]
        if there != pack_tokens(each.tokens):
            return found[:num]
    return found


def group_part(
    group: GroupId,
    records: Sequence[WindowRecord],
    tokens: bytes,
    vault: Vault,
    salted: Salted,
    hold_until_s: int = 0,
) -> GroupPart:
    """What is published of windows from the first of a domain on, which are in L2.

    Those that are sealed for this node alone, as they were private elsewhere, are sealed anew.
    Raises: NotFound where they are there no more, or the group is not this node's; StoreBroken,
        StoreFull.
    """
    first = records[0]
    step = TOKEN_BYTES * len(first.tokens)
    key = genesis_prefix(first.model_id, first.profile_id)
    for start in range(0, TOKEN_BYTES * first.position_start, step):
        key = next_prefix(key, tokens[start : start + step])
    root = salted(key, group)
    if root is None:
        raise NotFound(f"this node is not in group {short(group)}", hint="gliad group list")
    base = Base(first.before, root, first.position_start // len(first.tokens))
    keys = [root]
    for record in records:
        keys.append(next_prefix(keys[-1], pack_tokens(record.tokens)))
    names = [record.window_id for record in records]
    vault.share(list(zip(names, keys[1:], strict=True)))
    return GroupPart(group, records, _sealed(names, vault), base, keys[1:], hold_until_s)


def _sealed(names: Sequence[WindowId], vault: Vault) -> list[Opened]:
    found: list[Opened] = []
    at = vault.sealed(names[-1])
    for name in reversed(names):
        if at is None or at.record.window_id != name:
            raise NotFound(f"window {short(name)} is not in L2")
        found.append(at)
        at = None if at.window.is_first else vault.opened(at.window.prev)
    return found[::-1]
