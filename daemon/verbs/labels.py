"""Who may read what is said: the options of run and chat, and the labels that they come to."""

from __future__ import annotations

import argparse

from daemon import show
from daemon.verbs.arguments import group_name
from daemon.verbs.dialogue import Dialogue
from glia.client import Client
from glia.errors import BadRequest
from glia.graph.privacy import Visibility, label_word
from glia.model.chat import Message

_PUBLIC, _PRIVATE = Visibility.PUBLIC.word, Visibility.PRIVATE.word


def add_labels(verb: argparse.ArgumentParser) -> None:
    """Declare --public, --private, --group and --system-visibility."""
    either = verb.add_mutually_exclusive_group()
    either.add_argument(
        "--public",
        dest="visibility",
        action="store_const",
        const=_PUBLIC,
        help="peers may have what is said, and the answers",
    )
    either.add_argument(
        "--private",
        dest="visibility",
        action="store_const",
        const=_PRIVATE,
        help="nobody may have it: the default, unless glia.toml has another",
    )
    either.add_argument(
        "--group",
        dest="visibility",
        type=of_group,
        metavar="GROUP",
        help="members of this group, by its name or its id, may have what is said, and the answers",
    )
    verb.add_argument(
        "--system-visibility",
        choices=(_PUBLIC, _PRIVATE),
        help="who may have the system message, if not as the rest",
    )


def of_group(name: str) -> str:
    """The label of what its members may have."""
    return label_word(Visibility.AGGREGATE, group_name(name))


def check_labels(args: argparse.Namespace) -> None:
    """Raises: BadRequest for labels that cannot be."""
    if args.system_visibility is None:
        return
    if args.system is None:
        raise BadRequest("--system-visibility is for a system message", hint="give --system")
    if args.system_visibility == _PRIVATE and args.visibility not in (None, _PRIVATE):
        raise BadRequest(
            "what follows a private system message is private: it rests on it",
            hint="leave out --public" if args.visibility == _PUBLIC else "leave out --group",
        )


def settle_labels(args: argparse.Namespace, client: Client) -> None:
    """What was not said is as the node's settings have it."""
    if args.visibility is None:
        args.visibility = client.default_visibility()


def labelled(
    args: argparse.Namespace, system: str | None, text: str
) -> tuple[list[Message], list[str]]:
    """What is said, with a system message before it where there is one, and the labels."""
    messages: list[Message] = [{"role": "user", "content": text}]
    labels = [args.visibility]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
        labels.insert(0, args.system_visibility or args.visibility)
    return messages, labels


def tell_stays_private(args: argparse.Namespace, dialogue: Dialogue) -> None:
    """Say so where --public or --group changes nothing; before `settle_labels`."""
    asked, before = args.visibility, dialogue.label
    if asked in (None, _PRIVATE) or before in (asked, _PUBLIC):
        return
    if before == _PRIVATE:
        show.note("what was said before is private, so what follows is, too")
    elif asked == _PUBLIC:
        show.note(f"what was said before is of {before}, so what follows is, too")
    else:
        show.note(
            f"what was said before is of {before}: for another group, what follows is private"
        )
