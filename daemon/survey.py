"""All windows there are, as chains: which hang together, and which stand behind a hole."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from daemon.attachments import Layout
from daemon.domains import Domains
from daemon.telling import Told
from glia.graph.chain import Get
from glia.graph.group import GroupId
from glia.graph.ids import ModelId, PrefixKey, WindowId, genesis_prefix, genesis_window, next_prefix
from glia.graph.tokens import TOKEN_BYTES, pack_tokens


@dataclass(frozen=True, slots=True)
class _Link:
    """A window without its blocks.

    Attributes:
        before: the window before it.
        group: whose domain begins with it, None of most.
        root_key: the key before it, where it is a chain's first.
    """

    before: WindowId
    group: GroupId | None
    model_id: ModelId
    layout: Layout
    position: int
    tokens: bytes
    root_key: PrefixKey | None

    @property
    def end(self) -> int:
        return self.position + len(self.tokens) // TOKEN_BYTES


@dataclass
class Survey:
    """What a look at all windows gave.

    Attributes:
        key_of: prefix keys of those whose chain is whole back to its genesis.
        behind_holes: the others.
        parents: the window before each.
        layouts: those that there are windows of, by model.
    """

    key_of: dict[WindowId, PrefixKey] = field(default_factory=dict)
    behind_holes: set[WindowId] = field(default_factory=set)
    parents: dict[WindowId, WindowId] = field(default_factory=dict)
    layouts: dict[ModelId, set[Layout]] = field(default_factory=dict)


def survey(
    names: Collection[WindowId], get: Get, told: Told, domains: Domains | None = None
) -> Survey:
    """Look at these windows; those that `get` does not know are holes. For a worker thread.

    What stands in a domain of which nothing is known any more is behind a hole.
    """
    salted = (domains or Domains()).salted
    links = _read(names, get, told)
    missing = {link.before for link in links.values() if link.root_key is None} - links.keys()
    while missing:  # they came meanwhile, or are there after all
        found = _read(missing, get, told)
        links |= found
        missing = {link.before for link in found.values() if link.root_key is None} - links.keys()
    result = Survey(parents={name: link.before for name, link in links.items()})
    for name in sorted(links, key=lambda name: links[name].position):
        link = links[name]
        result.layouts.setdefault(link.model_id, set()).add(link.layout)
        before = link.root_key or result.key_of.get(link.before)
        follows = link.root_key is not None or (
            before is not None and links[link.before].end == link.position
        )
        if before is not None and link.group is not None:
            before = salted(before, link.group)
        if before is not None and follows:
            result.key_of[name] = next_prefix(before, link.tokens)
        else:
            result.behind_holes.add(name)
    return result


def _read(names: Collection[WindowId], get: Get, told: Told) -> dict[WindowId, _Link]:
    links: dict[WindowId, _Link] = {}
    for done, name in enumerate(names):
        told(done, len(names))
        record = get(name)
        if record is None:
            continue
        root_key = None
        own = record.model_id, record.profile_id
        if record.position_start == 0 and record.before == genesis_window(*own):
            root_key = genesis_prefix(*own)
        tokens = pack_tokens(record.tokens)
        layout = Layout(record.profile_id, len(record.tokens))
        group = record.root.group if record.root is not None else None
        links[name] = _Link(
            before=record.before,
            group=group,
            model_id=record.model_id,
            layout=layout,
            position=record.position_start,
            tokens=tokens,
            root_key=root_key,
        )
    return links
