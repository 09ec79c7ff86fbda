"""completion: what makes a shell complete gliad's verbs, options and paths."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import shtab

from daemon import show

_SHELLS = ("bash", "zsh")
_PATHS = {
    "DIR": shtab.DIRECTORY,
    "F": shtab.FILE,
    "FILE": shtab.FILE,
    "PATH": shtab.FILE,
}
_INSTALL = {
    "bash": "gliad completion bash > ~/.local/share/bash-completion/completions/gliad",
    "zsh": "gliad completion zsh > _gliad, in a directory of $fpath",
}


def add_verbs(verbs: Any, common: argparse.ArgumentParser, root: argparse.ArgumentParser) -> None:
    """Declare this module's verb. `root`: the parser of all verbs."""
    completion = verbs.add_parser(
        "completion", parents=[common], help="print a completion script for a shell"
    )
    completion.add_argument("shell", choices=_SHELLS)
    completion.set_defaults(verb=_completion, root=root)


def _completion(args: argparse.Namespace) -> int:
    _mark_paths(args.root)
    show.piece(shtab.complete(args.root, args.shell) + "\n")
    if sys.stdout.isatty():  # not to who sources it at each start of a shell
        show.note(f"to install it: {_INSTALL[args.shell]}")
    return 0


def _mark_paths(parser: argparse.ArgumentParser) -> None:
    """Which arguments are paths is said by how they are called in --help."""
    for action in parser._actions:
        if action.metavar in _PATHS:
            action.complete = _PATHS[str(action.metavar)]  # type: ignore[attr-defined]
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                _mark_paths(verb)
