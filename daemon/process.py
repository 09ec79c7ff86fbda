"""The process that is gliad: `python -m daemon.process`, started by `gliad start`.

It runs the node until it is told to stop. What keeps it from starting goes to its starter
through --report-fd as JSON, or to stderr in the foreground.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from daemon import show
from daemon.config import load_config
from daemon.launch import Report
from daemon.network_config import check_free
from daemon.node import main as run_node
from daemon.verbs.arguments import add_network, network_flags
from glia.errors import GliaError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a node. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m daemon.process")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--report-fd", type=int)
    parser.add_argument("--foreground", action="store_true")
    add_network(parser)
    args = parser.parse_args(argv)
    if args.report_fd is not None:
        os.set_inheritable(args.report_fd, False)  # engines must not hold it open
    if args.foreground:
        logging.getLogger("gliad").addHandler(logging.StreamHandler())
    os.umask(0o077)
    os.chdir("/")  # hold no directory of the starter's busy
    try:
        config, flags = load_config(args.data_dir, args.config, os.environ), network_flags(args)
        network = flags.over(config.network)
        check_free(flags.listen)
        return run_node(replace(config, network=network))
    except GliaError as problem:
        _report(problem, args.report_fd, args.data_dir)
        return problem.exit_code


def _report(problem: GliaError, report_fd: int | None, data_dir: Path) -> None:
    if report_fd is None:
        show.error(problem, data_dir)
        return
    said = Report(problem.code, problem.message, problem.hint)
    os.write(report_fd, msgspec.json.encode(said))


if __name__ == "__main__":
    sys.exit(main())
