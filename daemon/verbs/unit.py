"""unit: a systemd user unit that keeps gliad running."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from daemon import show
from daemon.config import Config, load_config
from daemon.verbs.arguments import add_config

# What user units can have without privileges. Not MemoryDenyWriteExecute: torch compiles kernels.
_UNIT = """[Unit]
Description=gliad: a cache of language models' K/V, and their engines

[Service]
Type=notify
ExecStart={command}
{environment}Restart=on-failure
RestartSec=5
# 2: a mistake in settings or arguments, 6: a data dir that cannot be used. Neither heals.
RestartPreventExitStatus=2 6
TimeoutStartSec=300
TimeoutStopSec=15
KillMode=mixed
UMask=0077
LimitCORE=0
NoNewPrivileges=yes
RestrictAddressFamilies={families}
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""
_INSTALL = """to install it:
  mkdir -p ~/.config/systemd/user
  {command} > ~/.config/systemd/user/gliad.service
  systemctl --user daemon-reload
  systemctl --user enable --now gliad
to have it run while you are not logged in: loginctl enable-linger"""


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    unit = verbs.add_parser(
        "unit",
        parents=[common],
        help="print a systemd user unit",
        description="The unit goes to stdout, how to install it to stderr.",
    )
    add_config(unit)
    unit.set_defaults(verb=_unit)


def _unit(args: argparse.Namespace) -> int:
    config = load_config(args.data_dir, args.config, os.environ)
    named: list[str | Path] = ["--config", args.config] if args.config else []
    command = [sys.executable, "-m", "daemon", "start", "--foreground", "--data-dir"]
    words = [*command, args.data_dir, *named]
    models_dir = os.environ.get("GLIA_MODELS_DIR")
    environment = f"Environment={_quoted(f'GLIA_MODELS_DIR={models_dir}')}\n" if models_dir else ""
    text = _UNIT.format(
        command=" ".join(_quoted(str(word), is_command=True) for word in words),
        environment=environment,
        families=_families(config),
    )
    show.piece(text)
    again = shlex.join(map(str, ["gliad", "unit", "--data-dir", args.data_dir, *named]))
    show.note(_INSTALL.format(command=again))
    return 0


def _families(config: Config) -> str:
    """Of sockets; over netlink the C library asks for the interfaces that there are."""
    if config.network.enabled:
        return "AF_UNIX AF_INET AF_INET6 AF_NETLINK"
    return "AF_UNIX AF_INET AF_INET6" if config.http.listen else "AF_UNIX"


def _quoted(word: str, *, is_command: bool = False) -> str:
    """A word as systemd.syntax(7) wants it; in commands a dollar sign begins a variable."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text.replace("$", "$$") if is_command else text}"'
