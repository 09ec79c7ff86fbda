"""checkpoint, restore: a Soul's conversations in a file, and in another Body."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from daemon import show
from daemon.commands import addressed
from daemon.verbs.arguments import absolute
from daemon.verbs.soul import add_passphrase, secret_of
from glia.client import Client
from glia.errors import BadRequest
from glia.local.messages import CheckpointReply, RestoreReply

_WHAT = {
    "new": "restored",
    "goes_on": "went on",
    "same": "is here",
    "newer": "is here, and says more",
}
_WOULD = {"new": "is not here", "goes_on": "would go on"}
_COPY_BYTES = 1024 * 1024


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verbs."""
    checkpoint = verbs.add_parser(
        "checkpoint",
        parents=[common],
        help="conversations as a file that their Soul alone can read, to stdout",
        description="Tokens, messages, labels, samplers and tips of conversations (none named: of "
        "all), signed by this Body's Soul and encrypted to it; no K/V. As it was at the last "
        "answer of each. checkpoint.every_hours in glia.toml makes them by themselves.",
    )
    checkpoint.add_argument("conversations", nargs="*", metavar="CONVERSATION")
    checkpoint.add_argument(
        "--to",
        type=absolute,
        metavar="FILE",
        help="write it there; what restores it from there makes this Body let go",
    )
    checkpoint.add_argument("--json", action="store_true", help="say what was written, with --to")
    checkpoint.set_defaults(verb=_checkpoint)

    restore = verbs.add_parser(
        "restore",
        parents=[common],
        help="have the conversations of a checkpoint here: all that are asked for, or none",
        description="They go on here as they would have there. K/V of public windows comes from "
        "peers, where they are sooner than computing; all else is computed again from the tokens. "
        "A claim beside FILE makes the Body that made it let go; one that cannot see it goes on "
        "until it is told: gliad soul heed.",
    )
    restore.add_argument("file", type=absolute, metavar="FILE")
    restore.add_argument("conversations", nargs="*", metavar="CONVERSATION")
    restore.add_argument(
        "--key", type=absolute, metavar="FILE", help="the Soul's key, locked or not"
    )
    restore.add_argument("--dry-run", action="store_true", help="only list what is in it")
    restore.add_argument(
        "--anyway", action="store_true", help="though it is old, or another Body may go on"
    )
    restore.add_argument("--json", action="store_true")
    add_passphrase(restore)
    restore.set_defaults(verb=_restore)


def _checkpoint(args: argparse.Namespace) -> int:
    if args.to is not None:
        made = _made(args, args.to, is_kept=True)
        if args.json:
            show.as_json(
                {name: getattr(made, name) for name in made.__struct_fields__ if name != "id"}
            )
        else:
            show.note(_summary(made))
        return 0
    if args.json or sys.stdout.isatty():
        raise BadRequest(
            "a checkpoint is no text", hint="gliad checkpoint > soul.glia, or --to FILE"
        )
    path = Path(args.data_dir) / f"checkpoint.{time.time_ns():x}"
    try:
        made = _made(args, path, is_kept=False)
        with path.open("rb") as file:
            while part := file.read(_COPY_BYTES):
                show.data(part)
    finally:
        path.unlink(missing_ok=True)
    show.note(_summary(made))
    return 0


def _made(args: argparse.Namespace, path: Path, *, is_kept: bool) -> CheckpointReply:
    progress = show.ProgressLine()
    with Client.connect(args.data_dir) as client:
        try:
            return client.checkpoint(
                path, args.conversations, is_kept=is_kept, on_progress=progress
            )
        finally:
            progress.clear()


def _summary(made: CheckpointReply) -> str:
    said = (
        f"checkpoint {made.sequence:,} of soul {made.soul.hex()[:12]}: "
        f"{made.num_conversations:,} conversations, {show.size(made.size_bytes)}"
    )
    if made.num_moved:
        said += f"; {made.num_moved:,} are at another Body and not in it"
    return said


def _restore(args: argparse.Namespace) -> int:
    secret = secret_of(args.key, args) if args.key is not None else None
    with Client.connect(args.data_dir) as client:
        progress = show.ProgressLine()
        try:
            got = client.restore(
                args.file,
                args.conversations,
                secret=secret,
                dry=args.dry_run,
                anyway=args.anyway,
                on_progress=progress,
            )
        finally:
            progress.clear()
        known = {each.model_id for each in client.models()}
    absent = {each.model for each in got.conversations if each.model_id.hex() not in known}
    if args.json:
        show.as_json(_as_dict(got, dry=args.dry_run))
        return 0
    words = {**_WHAT, **_WOULD} if args.dry_run else _WHAT
    show.table(
        ("NAME", "MODEL", "MESSAGES", "TOKENS", "WHAT"),
        [
            (r.name, r.model, f"{r.num_messages:,}", f"{r.num_tokens:,}", words.get(r.what, r.what))
            for r in got.conversations
        ],
    )
    for line in _notes(got, absent, dry=args.dry_run):
        show.note(addressed(line, args.data_dir))
    return 0


def _notes(got: RestoreReply, absent: set[str], *, dry: bool) -> list[str]:
    age = show.span(max(0.0, time.time() - got.time_s))
    lines = [f"checkpoint {got.sequence:,} of soul {got.soul.hex()[:12]}, {age} old"]
    if got.total > len(got.conversations):
        lines.append(f"and {got.total - len(got.conversations):,} more conversations")
    if absent:
        named = show.plain(", ".join(sorted(absent)))
        lines.append(
            f"not known by their model_id here yet: {named}; where gliad models lists one, "
            "its first run tells; else: gliad models add NAME PATH"
        )
    if dry:
        lines.append("nothing was changed")
    elif not got.claim:
        lines.append(
            "no claim could be written beside it: carry soul.claim of the data dir to the Body "
            "that made it, and there: gliad soul heed FILE"
        )
    return lines


def _as_dict(got: RestoreReply, *, dry: bool) -> dict[str, Any]:
    return {**_fields(got), "dry_run": dry}


def _fields(reply: CheckpointReply | RestoreReply) -> dict[str, Any]:
    return {name: getattr(reply, name) for name in reply.__struct_fields__ if name != "id"}
