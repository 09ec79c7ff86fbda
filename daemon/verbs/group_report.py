"""What verbs say of a group that they changed."""

from __future__ import annotations

import argparse

from daemon import show
from daemon.commands import addressed
from glia.local.group_values import GroupValue


def report_group(args: argparse.Namespace, group: GroupValue, said: str) -> int:
    """The group as JSON where that was asked for, else a line. Returns: the exit code."""
    if args.json:
        show.as_json(group)
    else:
        show.note(addressed(said, args.data_dir))
    return 0
