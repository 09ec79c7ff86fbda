"""Messages about what windows of peers proved to be, and whose word is taken."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from glia.local.messages.base import Call, Reply
from glia.local.messages.peers import PeerText
from glia.local.network_values import AuditedValue, NeuronValue
from glia.local.values import Count, Label, Name


class Audit(Call, frozen=True):
    """Compute windows again, and compare. Events: Progress.

    Of a chain, by its tip, whoever computed it; or all that came from peers: of whom one signs
    as, or of a model. What proves false has consequences as at any other time.

    sample: the share that is drawn; at least one.
    """

    tip: Name | None = None
    peer: PeerText | None = None
    model_id: Name | None = None
    sample: Annotated[float, Meta(gt=0, le=1)] = 1.0


class AuditReply(Reply, frozen=True):
    """What came of it.

    num_windows: from which were drawn. num_missed: drawn, and not here any more.
    counts: of each verdict. found: those that are not clean, at most 1,000.
    calibrated: whether it was measured for this model how far off honest windows are; else
        nobody is accused but of what is of class canonical.
    """

    num_windows: Count
    num_audited: Count
    num_missed: Count
    counts: dict[str, int]
    found: list[AuditedValue]
    calibrated: bool
    spent_s: float


class Calibrate(Call, frozen=True):
    """Measure how far off honest windows of a model are. Events: Progress. Minutes.

    dtype: None for the manifest's.
    """

    model: Label
    dtype: Label | None = None
    windows: Annotated[int, Meta(ge=64, le=65536)] = 384


class CalibrateReply(Reply, frozen=True):
    """What was measured, and is used from now on.

    kernels: instruction sets, by torch's names. whole, common: the limits of each layer, of K
        and of V (glia/spec/16-audit.md). path: of the file (glia/spec/20-calibration.md).
    """

    dtype: str
    num_windows: Count
    kernels: list[str]
    whole: list[tuple[float, float]]
    common: list[tuple[float, float]]
    path: str
    spent_s: float


class Neurons(Call, frozen=True):
    """Those that sign, and what is known of them, from number `start` on."""

    start: Count = 0


class NeuronsReply(Reply, frozen=True):
    neurons: list[NeuronValue]
    total: int


class Evidence(Call, frozen=True):
    """What proves that a neuron signed two canonical windows in place of one, from number `start`
    on."""

    neuron: Name
    start: Count = 0


class EvidenceReply(Reply, frozen=True):
    """`proofs`: as glia/spec/21-equivocation.md has them, as many as a frame holds; one that is
    larger than a frame is empty. `total`: how many there are."""

    proofs: list[bytes]
    total: int


class Trust(Call, frozen=True):
    """Take a neuron's word from now on, or never. Reply: Done.

    own: as this node's own; known: as a friend's; never: nothing it attests is used, and what
    came goes; default: as its peers are.
    """

    neuron: Name
    word: Literal["own", "known", "never", "default"]
