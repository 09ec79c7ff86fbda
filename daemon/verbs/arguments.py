"""What arguments of several verbs may be."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from daemon.config_readers import parse_size
from daemon.network_config import NetworkFlags
from glia.errors import BadRequest
from glia.graph.grant import MAX_NAME_BYTES

_MAX_DURATION_S = 2**40


def absolute(text: str) -> Path:
    """A path, whatever the working directory is later; an empty one names none."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text).expanduser().absolute()


def group_name(text: str) -> str:
    """A group's name here, or its id."""
    if not 1 <= len(text.encode()) <= MAX_NAME_BYTES:
        raise argparse.ArgumentTypeError(f"a group's name is 1 to {MAX_NAME_BYTES} bytes long")
    return text


def share(text: str) -> float:
    """Of what is drawn from."""
    try:
        part = float(text)
    except ValueError:
        part = 0.0
    if not 0 < part <= 1:
        raise argparse.ArgumentTypeError("a share is more than 0 and at most 1")
    return part


def add_config(verb: argparse.ArgumentParser) -> None:
    """Declare --config."""
    verb.add_argument("--config", type=absolute, metavar="F", help="instead of DIR/glia.toml")


def add_network(verb: argparse.ArgumentParser) -> None:
    """Declare what is said of the network."""
    verb.add_argument("--offline", action="store_true", help="no network: no socket of it is made")
    verb.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="ADDR",
        help="listen here and nowhere else, as /ip4/127.0.0.1/tcp/0",
    )
    verb.add_argument(
        "--bootstrap",
        action="append",
        default=[],
        metavar="ADDR",
        help="a peer to connect to, as gliad id shows it there",
    )


def network_flags(args: argparse.Namespace) -> NetworkFlags:
    """What was said of it."""
    return NetworkFlags(args.offline, tuple(args.listen), tuple(args.bootstrap))


def nameable(path: Path) -> Path:
    """A path that can stand in messages and manifests. Raises: BadRequest."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        shown = str(path).encode(errors="backslashreplace").decode()
        raise BadRequest(f"{shown}: a path here must be UTF-8", hint="rename it") from error
    return path


def seconds(text: str) -> float:
    """A time-out, 0 or more."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return value


def size(text: str) -> int:
    """Bytes, as 512MiB."""
    found = parse_size(text)
    if not found:
        raise argparse.ArgumentTypeError(f"not a size, as 512MiB or 1GiB: {text[:20]!r}")
    return found


def duration(text: str) -> int:
    """Seconds: a whole number and s, m, h or d."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = text[:-1], text[-1:]
    if unit not in units or not (number.isascii() and number.isdigit()) or not int(number) > 0:
        raise argparse.ArgumentTypeError(f"not a time, as 90s, 30m, 1h or 7d: {text[:20]!r}")
    return min(int(number) * units[unit], _MAX_DURATION_S)
