"""What a connection is bound to by `Attach`: model, profile, class; and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from glia.errors import BadRequest, ManifestError
from glia.graph.block import header_prefix
from glia.graph.ids import (
    BlockId,
    ModelId,
    PrefixKey,
    WindowId,
    genesis_block,
    genesis_prefix,
    genesis_window,
)
from glia.graph.numerics import CANONICAL, exact_with
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile
from glia.graph.window import MAX_CLASS_BYTES, WindowRecord, is_numerics_class
from glia.local.messages import Attach


@dataclass(frozen=True)
class Binding:
    """Model, profile and numerics class of one connection."""

    model_id: ModelId
    profile: Profile
    numerics_class: str

    @cached_property
    def exact_classes(self) -> tuple[str, ...]:
        """The classes whose windows are exact to it, its own first."""
        return exact_with(self.numerics_class)

    @property
    def takes_others(self) -> bool:
        """Whether it may continue windows of other classes where exactness is not asked for."""
        return self.numerics_class != CANONICAL

    @cached_property
    def root(self) -> WindowId:
        """The window before the first."""
        return genesis_window(self.model_id, self.profile.profile_id)

    @cached_property
    def root_key(self) -> PrefixKey:
        """The prefix key of no tokens."""
        return genesis_prefix(self.model_id, self.profile.profile_id)

    @cached_property
    def root_blocks(self) -> tuple[BlockId, ...]:
        """The block before the first, of each layer."""
        return tuple(
            genesis_block(self.model_id, self.profile.profile_id, shape.layer)
            for shape in self.profile.layers
        )

    @cached_property
    def _relative_prefixes(self) -> tuple[bytes, ...]:
        return tuple(
            header_prefix(self.model_id, self.profile, shape) for shape in self.profile.layers
        )

    def header_prefixes(self, position: int) -> tuple[bytes, ...]:
        """The first 96 bytes of each layer's header for a window at `position`."""
        if self.profile.mode is PositionMode.RELATIVE:
            return self._relative_prefixes
        return tuple(
            header_prefix(self.model_id, self.profile, shape, position)
            for shape in self.profile.layers
        )

    def fits(self, record: WindowRecord) -> bool:
        """Whether a window is of this model and profile."""
        return (
            record.model_id == self.model_id
            and record.profile_id == self.profile.profile_id
            and len(record.blocks) == len(self.profile.layers)
        )


def bind(call: Attach) -> Binding:
    """What an Attach asks for. Raises: BadRequest."""
    value = call.profile
    try:
        profile = Profile(
            block_size=value.block_size,
            scheme=KvScheme(value.scheme),
            mode=PositionMode(value.mode),
            layers=tuple(LayerShape(s.layer, s.kv_heads, s.head_dim) for s in value.layers),
        )
    except (ValueError, ManifestError) as error:
        raise BadRequest(f"not a profile: {error}") from error
    if not is_numerics_class(call.numerics_class.encode()):
        raise BadRequest(f"a numerics class is 1 to {MAX_CLASS_BYTES} characters of ASCII")
    return Binding(ModelId(call.model_id), profile, call.numerics_class)
