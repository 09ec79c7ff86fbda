"""What a group's rights and secrecy cost a server and a reader, in CPU time of one thread."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from glia.graph.capability import attenuate, grant
from glia.graph.claims import PeerKey
from glia.graph.group import Epoch, block_bytes, group_id_of, seal, sealed_id, unseal
from glia.graph.ids import digest
from glia.graph.neuron import Signer
from glia.graph.revoked import Revoked
from glia.graph.rights import Verifier
from glia.graph.scope import Op, Scope
from simulations.bench.report import Row
from simulations.bench.store import PROFILE

_NOW_S = 1_800_000_000


def checked(quick: bool) -> tuple[Row, dict[str, float]]:
    """A capability of one token that a server has not seen, and what else there is."""
    issuer, holder, friend = (Signer(secrets.token_bytes(32)) for _ in range(3))
    group = group_id_of(issuer.neuron)
    scope = Scope(group, group, Op.FETCH | Op.DELEGATE, 1, _NOW_S, _NOW_S + 3600)
    one = grant(issuer, PeerKey(holder.neuron), scope, _NOW_S, bytes(16))
    two = attenuate(one, holder, PeerKey(friend.neuron), scope, _NOW_S, bytes(16))

    def check(data: bytes, peer: Signer, *, fresh: bool) -> float:
        known = new_server()

        def once() -> None:
            server = new_server() if fresh else known
            server.check(data, PeerKey(peer.neuron), _NOW_S)

        return _mean_us(once, 200 if quick else 2000)

    def new_server() -> Verifier:
        server = Verifier(group, PeerKey(holder.neuron))
        server.revoked = Revoked(issuer.neuron, 1, _NOW_S)
        return server

    figures = {
        "one token, us": check(one.encoding, holder, fresh=True),
        "two tokens, us": check(two.encoding, friend, fresh=True),
        "one token, seen before, us": check(one.encoding, holder, fresh=False),
    }
    first_ms = figures["one token, us"] / 1000
    again = figures["one token, seen before, us"]
    return Row("G1", first_ms, f"{first_ms:.3f} ms", f"{again:.1f} us when seen before"), figures


def opened(quick: bool) -> tuple[Row, dict[str, float]]:
    """A ciphertext of a 64 KiB block, as a reader opens it, and what else there is."""
    epoch = Epoch(1, secrets.token_bytes(32))
    size = block_bytes(PROFILE)
    particle = secrets.token_bytes(size)
    name, sealed = digest(particle), seal(epoch, particle, size)
    num = 200 if quick else 2000
    figures = {
        "open, us": _mean_us(lambda: unseal(epoch, sealed, name), num),
        "seal, us": _mean_us(lambda: seal(epoch, particle, size), num),
        "check its public name, us": _mean_us(lambda: sealed_id(epoch.epoch_id, sealed), num),
    }
    plain_us = _mean_us(lambda: digest(particle), num)
    return Row(
        "G2", figures["open, us"], f"{figures['open, us']:.1f} us", f"{plain_us:.1f} us to hash it"
    ), figures


def _mean_us(call: Callable[[], object], num: int) -> float:
    call()
    began_s = time.thread_time()
    for _ in range(num):
        call()
    return 1e6 * (time.thread_time() - began_s) / num
