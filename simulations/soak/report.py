"""What must hold of the samples, and whether it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from simulations.soak.samples import MIB, Sample, slope_mib

MAX_SLOPE_MIB = 1.0  # in 10 minutes
MAX_FDS = 5
MAX_OVER = 1.25  # of L2's cap, on disk
_MIN_SPAN_S = 600.0  # a slope of less says nothing


@dataclass(frozen=True)
class Verdict:
    """One claim. `holds`: None where the run was too short to say."""

    claim: str
    found: str
    holds: bool | None


def judge(samples: Sequence[Sample], warm_up_s: float, counts: Counter[str]) -> list[Verdict]:
    """All claims, on what was seen after the warm-up."""
    warm = [sample for sample in samples if sample.seconds >= warm_up_s]
    pinned = [sample.pinned_bytes for sample in samples if sample.pinned_bytes is not None]
    disk = max(sample.store_bytes / sample.l2_cap_bytes for sample in samples)
    used = max(sample.l2_bytes / sample.l2_cap_bytes for sample in samples)
    return [
        _slope("gliad", warm, [sample.gliad_bytes for sample in warm]),
        _slope("engine", warm, [sample.engine_bytes for sample in warm]),
        _spread("gliad", [sample.gliad_fds for sample in warm]),
        _spread("engine", [sample.engine_fds for sample in warm]),
        Verdict("nothing pinned when idle", f"{max(pinned, default=0)} B", not any(pinned)),
        Verdict("L2 within its cap", f"{used:.2f} of it", used <= 1.0),
        Verdict(f"the store's files within {MAX_OVER} caps", f"{disk:.2f}", disk <= MAX_OVER),
        Verdict("no request failed", f"{counts['failed']}", counts["failed"] == 0),
        Verdict("nothing crashed", f"{samples[-1].crashed}", samples[-1].crashed == 0),
    ]


def _slope(who: str, samples: Sequence[Sample], sizes: Sequence[int]) -> Verdict:
    claim = f"memory of {who} grows less than {MAX_SLOPE_MIB:g} MiB in 10 min"
    if len(samples) < 3 or samples[-1].seconds - samples[0].seconds < _MIN_SPAN_S:
        return Verdict(claim, "too short a run", None)
    slope = slope_mib([sample.seconds for sample in samples], sizes)
    found = f"{slope:+.2f} MiB, {min(sizes) / MIB:.1f} to {max(sizes) / MIB:.1f} MiB"
    return Verdict(claim, found, slope < MAX_SLOPE_MIB)


def _spread(who: str, numbers: Sequence[int]) -> Verdict:
    claim = f"descriptors of {who} within {MAX_FDS}"
    if not numbers:
        return Verdict(claim, "too short a run", None)
    spread = max(numbers) - min(numbers)
    return Verdict(claim, f"{min(numbers)} to {max(numbers)}", spread <= MAX_FDS)
