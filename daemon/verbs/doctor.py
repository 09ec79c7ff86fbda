"""doctor: what is amiss with a node or its machine, and what to change."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import Any

from daemon import show
from daemon.commands import addressed
from daemon.config import Config, load_config
from daemon.doctor import (
    clock,
    conversations,
    disk,
    groups,
    memory,
    models,
    network,
    places,
    software,
)
from daemon.doctor.finding import Finding, Look, Subject, examine
from daemon.paths import Paths, default_models_dir
from daemon.verbs.arguments import add_config
from glia.client import Client
from glia.errors import ConfigError, GliaError, NotRunning
from glia.local.messages import StatusReply

_LOOKS: tuple[tuple[str, Look], ...] = (
    ("permissions", places.look),
    ("software", software.look),
    ("memory", memory.look),
    ("disk", disk.look),
    ("clock", clock.look),
    ("network", network.look),
    ("groups", groups.look),
    ("models", models.look),
    ("conversations", conversations.look),
)


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    doctor = verbs.add_parser(
        "doctor",
        parents=[common],
        help="what is amiss here, and what to change",
        description="Looks at permissions, versions, memory, limits, disk, clock, network, groups, "
        "models and conversations; changes nothing. A gliad may run meanwhile. "
        "Exit code 1 where something is bad.",
    )
    add_config(doctor)
    doctor.add_argument("--json", action="store_true")
    doctor.set_defaults(verb=_doctor)


def _doctor(args: argparse.Namespace) -> int:
    findings: list[Finding] = []
    config = _config(args, findings)
    status = _status(args, findings)
    subject = Subject(config, Paths(args.data_dir), status)
    for name, look in _LOOKS:
        findings += examine(name, look, subject)
    findings = [_addressed(finding, args.data_dir) for finding in findings]
    if args.json:
        show.as_json([dataclasses.asdict(finding) for finding in findings])
    else:
        show.table(("VERDICT", "WHAT", "FOUND"), [(f.verdict, f.name, f.found) for f in findings])
    for finding in findings:
        if finding.verdict != "ok":
            show.note(f"{finding.verdict}: {finding.name}: {finding.change}")
    return GliaError.exit_code if any(f.verdict == "bad" for f in findings) else 0


def _addressed(finding: Finding, data_dir: Path) -> Finding:
    found, change = (addressed(text, data_dir) for text in (finding.found, finding.change))
    return dataclasses.replace(finding, found=found, change=change)


def _config(args: argparse.Namespace, findings: list[Finding]) -> Config:
    try:
        return load_config(args.data_dir, args.config, os.environ)
    except ConfigError as error:
        change = error.hint or "the project's glia.toml shows every key"
        findings.append(Finding("settings", "bad", error.message, change))
        return Config(args.data_dir, default_models_dir(os.environ))


def _status(args: argparse.Namespace, findings: list[Finding]) -> StatusReply | None:
    try:
        with Client.connect(args.data_dir, timeout_s=0.0) as client:
            return client.status()
    except NotRunning:
        return None
    except GliaError as error:
        change = error.hint or "gliad stop, then gliad start"
        findings.append(Finding("gliad runs", "bad", error.message, change))
        return None
