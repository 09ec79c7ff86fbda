"""trust NEURON --evidence: what proves that a neuron signed two windows in place of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from daemon import show
from glia.errors import BadRequest, NotFound
from glia.graph.equivocation import parse_equivocation
from glia.graph.ids import digest
from glia.graph.neuron import NeuronId


def write_evidence(directory: Path, neuron: NeuronId, proofs: Sequence[bytes], json: bool) -> int:
    """A file each, that anybody can verify. Raises: NotFound, BadRequest, MalformedParticle."""
    if not proofs:
        raise NotFound(
            f"nothing that neuron {neuron.hex()[:12]} signed contradicts itself",
            hint="gliad trust says what else it was caught at",
        )
    told = []
    for data in proofs:
        if not data:
            show.note("one is larger than the local API carries, and is left out")
            continue
        found = parse_equivocation(data)
        path = directory / f"{digest(data).hex()[:16]}.equivocation"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise BadRequest(f"{path}: {error.strerror}", hint="another directory") from error
        told.append(
            {
                "path": str(path),
                "one": found.one.window.window_id.hex(),
                "other": found.other.window.window_id.hex(),
                "position": found.one.window.position_start,
            }
        )
    if json:
        show.as_json(told)
        return 0
    for each in told:
        show.line(
            f"{each['path']}: windows {str(each['one'])[:12]} and {str(each['other'])[:12]} at "
            f"token {each['position']:,}, of the same tokens, both signed"
        )
    return 0
