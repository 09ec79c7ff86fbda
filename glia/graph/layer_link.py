"""Links between blocks, layer by layer, derived from a signed link and two window records.

A window record names the blocks of all its layers, so one signature over windows speaks for
every one of these: they are never sent or stored. See spec/9-link.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from glia.errors import MalformedParticle
from glia.graph.block import Block
from glia.graph.chain import follows
from glia.graph.ids import BlockId, ModelId, genesis_block, genesis_window, short
from glia.graph.link import Link, LinkKind
from glia.graph.neuron import NeuronId
from glia.graph.profile import PositionMode, Profile
from glia.graph.window import WindowRecord


@dataclass(frozen=True, slots=True)
class LayerLink:
    """`to_block` continues `from_block` in one layer, from `position_start` on, as signed."""

    kind: LinkKind
    signer: NeuronId
    from_block: BlockId
    to_block: BlockId
    layer: int
    position_start: int
    model_id: ModelId


def layer_links(
    link: Link, profile: Profile, before: WindowRecord | None, after: WindowRecord
) -> list[LayerLink]:
    """One for each layer of the profile, in its order.

    Args:
        link: attests `after`: the caller held its claim against the records (check_link).
        before: the window before it, None at the beginning.
    Raises: MalformedParticle where the two do not follow each other, or fit no such profile.
    """
    model_id, profile_id = link.claim.model_id, profile.profile_id
    prev = before.window_id if before is not None else genesis_window(model_id, profile_id)
    starts = follows(before, after) if before is not None else after.position_start == 0
    agrees = (
        starts
        and after.prev == prev
        and len(after.blocks) == len(profile.layers)
        and len(after.tokens) == profile.block_size
        and (after.model_id, after.profile_id) == (model_id, profile_id)
        and link.claim.profile_id == profile_id
    )
    if not agrees:
        raise MalformedParticle(f"window {short(after.window_id)} does not follow as it is linked")
    made = []
    for index, shape in enumerate(profile.layers):
        root = genesis_block(model_id, profile_id, shape.layer)
        made.append(
            LayerLink(
                kind=link.claim.kind,
                signer=link.signer,
                from_block=before.blocks[index] if before is not None else root,
                to_block=after.blocks[index],
                layer=shape.layer,
                position_start=after.position_start,
                model_id=model_id,
            )
        )
    return made


def check_target(link: LayerLink, block: Block, profile: Profile) -> None:
    """Whether a block's header says what the link to it says.

    In relative mode a header has no position: there the window records have it.
    Raises: MalformedParticle.
    """
    absolute = profile.mode is PositionMode.ABSOLUTE
    agrees = (
        block.block_id == link.to_block
        and block.prev == link.from_block
        and block.shape.layer == link.layer
        and block.model_id == link.model_id
        and block.position_anchor == (link.position_start if absolute else 0)
    )
    if not agrees:
        raise MalformedParticle(f"block {short(block.block_id)} is not what a link says of it")
