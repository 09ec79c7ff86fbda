"""soul: who this Body is of; its key, made, carried, brought along."""

from __future__ import annotations

import argparse
import getpass
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from daemon import show
from daemon.commands import addressed
from daemon.data_dir import prepare
from daemon.paths import Paths
from daemon.soul_key import (
    keep_secret,
    new_secret,
    read_carried,
    read_secret,
    read_soul,
    unlocked,
    write_locked,
)
from daemon.verbs.arguments import absolute
from glia.client import Client
from glia.errors import BadRequest, NotRunning
from glia.graph.soul import is_locked
from glia.local.messages import MovesReply

_MAX_PASSPHRASE_BYTES = 1024


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    soul = verbs.add_parser(
        "soul",
        help="whose conversations these are: its key, and where it moved",
        description="A Soul is one key; checkpoints are signed by it and encrypted to it, and "
        "whoever has it can read them all. It is in soul.key of the data dir, mode 0600.",
    )
    does = soul.add_subparsers(metavar="create|show|export|import|heed", required=True)
    create = does.add_parser("create", parents=[common], help="make one for this Body")
    create.set_defaults(verb=_create)
    shown = does.add_parser("show", parents=[common], help="its name, and what is known of moves")
    shown.set_defaults(verb=_show)
    export = does.add_parser(
        "export", parents=[common], help="write its key, locked with a passphrase, to a file"
    )
    export.set_defaults(verb=_export)
    taken = does.add_parser("import", parents=[common], help="have the key that is in a file here")
    taken.set_defaults(verb=_import)
    heed = does.add_parser(
        "heed", parents=[common], help="let go what a claim says another Body has"
    )
    heed.set_defaults(verb=_heed)
    for verb in (export, taken, heed):
        verb.add_argument("file", type=absolute, metavar="FILE")
    for verb in (export, taken):
        add_passphrase(verb)
    for verb in (create, shown, export, taken, heed):
        verb.add_argument("--json", action="store_true")


def add_passphrase(verb: argparse.ArgumentParser) -> None:
    """Declare where a passphrase comes from, if not from the terminal."""
    verb.add_argument(
        "--passphrase-file", type=absolute, metavar="FILE", help="its first line; else it is asked"
    )


def secret_of(path: Path, args: argparse.Namespace) -> bytes:
    """The Soul's secret in a file, locked or not. Raises: BadRequest, StoreBroken."""
    data = read_carried(path)
    return unlocked(data, passphrase(args) if is_locked(data) else "")


def passphrase(args: argparse.Namespace, *, twice: bool = False) -> str:
    """From the file that was named, else from the terminal. Raises: BadRequest."""
    if args.passphrase_file is not None:
        text = _first_line(args.passphrase_file)
    elif not sys.stdin.isatty():
        raise BadRequest("nobody can be asked for the passphrase", hint="--passphrase-file FILE")
    else:
        text = getpass.getpass("passphrase: ")
        if twice and getpass.getpass("once more: ") != text:
            raise BadRequest("the passphrases differ", hint="try again")
    if not text:
        raise BadRequest("the passphrase is empty", hint="a few words do")
    return text


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_PASSPHRASE_BYTES)
        return data.split(b"\n", 1)[0].decode()
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}", hint="name another file") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{path}: not text in UTF-8", hint="name another file") from error


def _create(args: argparse.Namespace) -> int:
    paths = Paths(args.data_dir)
    prepare(paths)
    if paths.soul_key.exists():
        name = read_soul(paths.soul_key).name
        raise BadRequest(f"there is a Soul here: {name.hex()[:12]}", hint="gliad soul show")
    name = keep_secret(paths.soul_key, new_secret()).name
    _tell(args, name, f"soul {name.hex()}")
    if not args.json:
        said = "carry its key to the next Body: gliad soul export FILE"
        show.note(addressed(said, args.data_dir))
    return 0


def _show(args: argparse.Namespace) -> int:
    paths = Paths(args.data_dir)
    name = read_soul(paths.soul_key).name
    known = None
    with suppress(NotRunning), Client.connect(args.data_dir, timeout_s=0.0) as client:
        known = client.moves()
    if args.json:
        show.as_json({"soul": name, **(_as_dict(known) if known is not None else {})})
        return 0
    show.line(f"soul {name.hex()}")
    for line in _lines(known) if known is not None else ():
        show.line(line)
    return 0


def _export(args: argparse.Namespace) -> int:
    secret = read_secret(Paths(args.data_dir).soul_key)
    write_locked(args.file, secret, passphrase(args, twice=True))
    name = read_soul(Paths(args.data_dir).soul_key).name
    _tell(args, name, f"the key of soul {name.hex()[:12]} is in {args.file}")
    return 0


def _import(args: argparse.Namespace) -> int:
    secret = secret_of(args.file, args)
    paths = Paths(args.data_dir)
    prepare(paths)
    name = keep_secret(paths.soul_key, secret).name
    _tell(args, name, f"this Body is of soul {name.hex()}")
    return 0


def _heed(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        known = client.heed(args.file)
    if args.json:
        show.as_json(_as_dict(known))
        return 0
    for line in _lines(known):
        show.line(line)
    return 0


def _tell(args: argparse.Namespace, name: bytes, text: str) -> None:
    if args.json:
        show.as_json({"soul": name})
    else:
        show.line(text)


def _as_dict(known: MovesReply) -> dict[str, Any]:
    moves = known.moves
    return {name: getattr(moves, name) for name in moves.__struct_fields__}


def _lines(known: MovesReply) -> list[str]:
    moves = known.moves
    lines = [f"checkpoint {moves.sequence:,}, move {moves.epoch:,}"]
    if moves.num_moved:
        lines.append(f"conversations at Body {moves.holder[:12]}: {moves.num_moved:,}")
    return lines
