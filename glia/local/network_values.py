"""Values of the network that messages of the local API carry: peers, and what they attest."""

from __future__ import annotations

from msgspec import Struct

from glia.local.values import FindingValue, Name


class PeerValue(Struct, frozen=True):
    """One peer. Blocks and bytes `in` came from it, `out` went to it.

    name: what it says that it is.
    neuron: in whose name it signs, "" where that is not known.
    trust: own, known (it was added), or stranger.
    connection: who dialled, `in` or `out`; "" where there is none.
    address: of the connection, else where it is dialled.
    rtt_s, speed: seconds and bytes/s, None until measured.
    num_bad: how often it sent what it must not.
    seen_s: seconds since 1970, UTC; 0 where never.
    """

    peer: str
    name: str = ""
    neuron: str = ""
    trust: str = "stranger"
    connection: str = ""
    address: str = ""
    rtt_s: float | None = None
    speed: float | None = None
    blocks_in: int = 0
    bytes_in: int = 0
    blocks_out: int = 0
    bytes_out: int = 0
    num_bad: int = 0
    banned: bool = False
    seen_s: float = 0.0


class HolderValue(Struct, frozen=True):
    """What a peer says that it has of a prompt.

    num_tokens: leading tokens, whole windows.
    numerics_class, tip: of the last window.
    signers: neurons that signed links of it, by what it sent: not held against its windows.
    """

    peer: str
    num_tokens: int
    numerics_class: str
    tip: Name
    signers: list[str]


class LinkValue(Struct, frozen=True):
    """One link: `signer` computed the windows after `base` up to `tip`, and says so.

    own: this node's neuron signed it.
    trust: what its signer is here: own, known, stranger, banned or never.
    accepted: whether the signer's word is taken here (network.accept).
    source: published (it goes with what is shown here), or heard (others said it; a hint).
    kind: next_block.
    num_before, num_windows: windows of the chain up to base, and up to tip.
    sequence: the signer's count. time_s: by the signer's clock, seconds since 1970, UTC.
    """

    signer: Name
    own: bool
    source: str
    kind: str
    model_id: Name
    base: Name
    tip: Name
    num_before: int
    num_windows: int
    sequence: int
    time_s: int
    trust: str = "stranger"
    accepted: bool = False


class NextBlockValue(Struct, frozen=True):
    """A block that continues another one in its layer.

    window: the window that it is of, with that window's position and tokens.
    signers: neurons that attest that window.
    """

    block: Name
    window: Name
    position_start: int
    tokens: list[int]
    numerics_class: str
    signers: list[Name]


class NetworkValue(Struct, frozen=True):
    """A node's network.

    peer_id, addresses: "" and none until it is on for the first time.
    why_off: why it is off just now, "" while it is on.
    num_known: peers that are connected, kept, or remembered.
    mdns: how nodes on the LAN are found: "on", "off", "alone" (there is no interface but
        loopback; one that comes up is used), or what does not work.
    twin: where another node of the LAN is that has this one's peer id, "" for nowhere.
    """

    peer_id: str
    addresses: list[str]
    num_connected: int
    why_off: str = ""
    num_known: int = 0
    mdns: str = "off"
    twin: str = ""


class AuditedValue(Struct, frozen=True):
    """A window that was computed again. `signer`: who attests it, None where nothing says it."""

    position_start: int
    numerics_class: str
    signer: Name | None
    finding: FindingValue


class NeuronValue(Struct, frozen=True):
    """One that signs.

    word: what the user says of it: own, known, never, or default.
    trust: what it is here: own, known, stranger, banned or never.
    accepted: whether its word is taken. caught_s, why: when, and what, proved false; 0 where
        nothing did.
    rate: the share of its windows that is computed again.
    num_windows, num_condemned: that came and are here; of these, used no more.
    num_checked, num_refused: looked at before their first use: that passed, that did not.
    num_audited, num_clean, num_other: computed again; of these held, were of other arithmetic
        lately.
    num_equivocations: how often it signed two canonical windows in place of one.
    """

    neuron: Name
    word: str
    trust: str
    accepted: bool
    caught_s: float
    why: str
    rate: float
    num_windows: int
    num_condemned: int
    num_checked: int
    num_refused: int
    num_audited: int
    num_clean: int
    num_other: int
    num_equivocations: int = 0
