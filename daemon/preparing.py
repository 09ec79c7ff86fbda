"""Everything that a node begins with: opened before anything runs, closed after all has ended."""

from __future__ import annotations

import logging
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version

from daemon.arena import make_arena
from daemon.claim_files import ClaimFiles
from daemon.condemning import Condemning
from daemon.config import Config
from daemon.conversation_files import ConversationFiles
from daemon.conversations import Conversations
from daemon.data_dir import DataDirLock, check_version, prepare
from daemon.domains import Domains, epochs_of
from daemon.door_process import Door, open_door
from daemon.groups import Groups, open_groups
from daemon.logs import close_log, open_log
from daemon.memory import Memory
from daemon.neuron_key import neuron_signer, own_secret
from daemon.paths import Paths
from daemon.peering import Peering, open_peering
from daemon.restored_files import finish_restoring
from daemon.server import listen
from daemon.shared import Shared
from daemon.soul_state import SoulState
from glia.allocator import limit_heap
from glia.local.address import socket_path
from glia.store.base import BlockStore
from glia.store.disk import DiskStore
from glia.store.group_index import GroupIndex
from glia.store.keyring import Keyring
from glia.store.published import Published
from glia.store.reserve import RESERVE_BYTES
from glia.store.vault import Vault

_MAX_FILES = 65536
_LARGE_BYTES = 256 * 1024
_log = logging.getLogger("gliad")


def gliad_version() -> str:
    """The version of the installed distribution."""
    try:
        return version("gliad")
    except PackageNotFoundError:
        return "0"


@dataclass(frozen=True)
class Prepared:
    """What a node begins with.

    Attributes:
        published, shared: what peers may see, and members of groups; None where there never was a
            network.
        door, peering: None where there is none.
    """

    memory: Memory
    conversations: Conversations
    soul: SoulState
    claim_files: ClaimFiles
    listener: socket.socket
    door: Door | None
    published: Published | None
    peering: Peering | None
    groups: Groups
    vault: Vault
    shared: Shared | None


@contextmanager
def prepared(config: Config) -> Iterator[Prepared]:
    """Everything that can fail for a reason the user should read, before anything runs."""
    paths = Paths(config.data_dir)
    socket_path(paths.socket)
    _limit()
    limit_heap(_LARGE_BYTES)
    with ExitStack() as stack:
        prepare(paths)
        lock = DataDirLock(paths)
        stack.callback(lock.release)
        handler = open_log(paths.log, config.log)
        stack.callback(close_log, handler)
        check_version(paths)
        arena = make_arena(config.l1.size_bytes)
        stack.callback(arena.close)
        l2 = config.l2
        store = DiskStore(paths.store, l2.size_bytes, l2.segment_bytes, RESERVE_BYTES)
        stack.callback(store.close)
        finish_restoring(paths)
        soul = SoulState.read(
            paths.soul_state, cache(lambda: neuron_signer(paths.neuron_key).neuron)
        )
        files = ConversationFiles(paths.conversations)
        conversations = Conversations(files, config.conversations)
        conversations.check_here, conversations.moved_to = soul.check_here, soul.moved_to
        claim_files = ClaimFiles(soul)
        conversations.look = claim_files.look
        listener = listen(paths.socket)
        stack.callback(paths.socket.unlink, missing_ok=True)
        stack.callback(listener.close)
        door = open_door(config.http, paths)
        if door is not None:
            stack.callback(door.close)
        published = open_published(config, paths, store, stack)
        peering = None
        if published is not None:
            agent = f"gliad/{gliad_version()}"
            peering = open_peering(config.network, paths, agent, published, stack)
        groups = open_groups(paths, is_on_network=peering is not None)
        conversations.groups = groups
        lock.name_holder()  # on a full disk there is room only now, and then no more
        store.take_reserve()
        _log.info("gliad %s starts at %s", gliad_version(), paths.data_dir)
        if lock.predecessor:
            _log.warning(
                "the gliad before (pid %s) did not end by itself: its lock and socket are mine now",
                lock.predecessor,
            )
            # Of what it was answering when it ended no file says that it is to be forgotten.
            conversations.strays = not config.conversations.anonymous_hours
        own = cache(partial(own_secret, paths.own_key))
        if groups.all():
            own()  # if others could read it, that is said now
        vault = Vault(store, Keyring(lambda: epochs_of(groups), own))
        memory = Memory(arena, vault, config.l1.hot_steps, Domains(groups))
        if published is not None:
            Condemning.load(memory, published)
        conversations.condemned = memory.hidden.condemned
        shared = None
        if published is not None:
            shared = Shared(vault, store, GroupIndex(paths.published_groups), groups)
            stack.callback(shared.index.close)
        yield Prepared(
            memory,
            conversations,
            soul,
            claim_files,
            listener,
            door,
            published,
            peering,
            groups,
            vault,
            shared,
        )
        _log.info("gliad ends")


def open_published(
    config: Config, paths: Paths, store: BlockStore, stack: ExitStack
) -> Published | None:
    """Also without a network: what was published stays when conversations are forgotten.

    Who has a peer id was on the network: where the index is gone, nothing says which of the
    windows that are here came from peers.
    """
    if not config.network.enabled and not paths.published.exists():
        return None
    is_lost = paths.peer_key.exists() and any(True for _ in store.windows())
    published = Published(paths.published, is_lost=is_lost)
    stack.callback(published.close)
    return published


def _limit() -> None:
    """No core dumps (they would hold prompts), no file for others, descriptors enough."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if most == resource.RLIM_INFINITY else min(most, _MAX_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
