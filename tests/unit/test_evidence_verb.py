"""gliad trust NEURON --evidence: what proves a lie, in files that anybody can verify."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.verbs.evidence import write_evidence
from glia.errors import BadRequest, MalformedParticle, NotFound
from tests.vectors import equivocation_reference
from tests.vectors.make_equivocation import proof


def test_each_proof_is_a_file_that_the_second_reader_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = proof()
    directory = tmp_path / "new" / "evidence"
    assert write_evidence(directory, found.signer, [found.encoding, b""], True) == 0
    (told,) = json.loads(capsys.readouterr().out)
    read = equivocation_reference.read_equivocation(Path(told["path"]).read_bytes())
    assert (told["one"], told["other"]) == (read[1].hex(), read[2].hex())
    assert told["position"] == found.one.window.position_start
    assert write_evidence(directory, found.signer, [found.encoding], False) == 0
    assert told["one"][:12] in capsys.readouterr().out


def test_what_is_none_is_not_written(tmp_path: Path) -> None:
    found = proof()
    with pytest.raises(NotFound):
        write_evidence(tmp_path, found.signer, [], True)
    with pytest.raises(MalformedParticle):
        write_evidence(tmp_path, found.signer, [found.encoding[:-1]], True)
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(BadRequest):
        write_evidence(tmp_path / "taken", found.signer, [found.encoding], True)
