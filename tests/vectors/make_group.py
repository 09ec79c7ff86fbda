"""Writes group.json and capability.json: `python -m tests.vectors.make_group`. Frozen."""

from __future__ import annotations

from dataclasses import replace

from glia.graph.capability import Chain, attenuate, grant
from glia.graph.claims import PeerKey
from glia.graph.epoch_statement import state_epoch
from glia.graph.grant import CARD_TEXT, GRANT_TEXT, as_text
from glia.graph.group import (
    Epoch,
    GroupSecret,
    domain_block,
    domain_prefix,
    domain_window,
    group_id_of,
    record_bytes,
    seal,
    sealed_id,
    secret_id,
)
from glia.graph.ids import BlockId, PrefixKey, WindowId, digest
from glia.graph.member import Box, sign_card
from glia.graph.neuron import Signer
from glia.graph.revoked import Revoked, sign_revoked
from glia.graph.scope import Op, Scope
from tests.vectors import make

TIME_S = 1_800_000_000
ISSUER = Signer(make.seed("issuer", 32))
HOLDERS = [Signer(make.seed(f"holder {number}", 32)) for number in range(3)]
NEURON = Signer(make.seed("neuron", 32))
BOX = Box(make.seed("box", 32))
GROUP = group_id_of(ISSUER.neuron)
SECRET = GroupSecret(make.seed("group secret", 32))
EPOCHS = (Epoch(1, make.seed("epoch 1", 32)), Epoch(2, make.seed("epoch 2", 32)))
STATEMENTS = tuple(state_epoch(ISSUER, epoch, SECRET) for epoch in EPOCHS)

# HPKE draws a key for each message: made once by sign_grant, of what `_grant` says.
GRANT = bytes.fromhex(
    "8443a10127a0590375a60167667269656e6473021a6b49d20003590168815901648443a10127a0590119aa01"
    "7840346532313663313265316534633463373661343439636232376261663235376631323761373238343261"
    "3962383134383066323261353461656137636537363402784062646661313030303833303036643130613666"
    "3863373030323735313531663165303732383831343965353439353735326633386265386539393065633363"
    "3003784062646661313030303833303036643130613666386337303032373531353166316530373238383134"
    "396535343935373532663338626538653939306563336330041a6b4b2380051a6b49d200061a6b49d2000750"
    "a866821726ffb06b6e43a1e283875fd208a103582097ecc00e7683d68dbdfae46742108d33e3757c5d64a1a1"
    "063c9a66eae259bcb818640718680158405362484fdb52464e63c90543e0ba76daa525666aabde8ffea6b2d4"
    "b15f13ad5531e8e36b7504ee9c20637584f30c2bea91c9d703bcdd12e9f63f464377d5a90904590122bd2845"
    "dc82c5e4de8e2862cf3155196845942b27bab1d74356ebc31cc9cbca425c8173f622fb29d2e2a072d40c68b8"
    "04b02b3113e446018c71ffe66c09d1c1a76dc8eb0c0d1ab28cf2c8bc8bdd1c6c8cef76bae0afec4ba1616ef2"
    "61b2ca5e4178e7e853d88c5e58bc10a8ca037957cfa16f2dbd4b9c1d8ede86d11f07945e051bafe6c8c1c214"
    "c333931bee88025b5c1978a6c303e1676a77b58fb6022d589c840241680bc76c94d7f303c47914e737995188"
    "a27dce7eec056f2d935fefd8f5df48424bc663c0f19813496d2887e7e6cd5c6544b226963044503f19064aa3"
    "90f06bca396cd1bccd6e77d4e7c8a28e2bae1067cc10ac3b070cf42713fd145cc62703aa3ff782f570cbeec8"
    "4400bc78e0643a8ebf8503f34c1955c122ff6057b1393705587c8443a10127a05832a60158204e216c12e1e4"
    "c4c76a449cb27baf257f127a72842a9b81480f22a54aea7ce7640201031a6b49d20004010580068058405f28"
    "c1483a7f2e0d48c413099e6c516cea2116483067521b0d320f022e65a1a766652bb2ea3a65bc95ff3995661a"
    "a60ed9b3905486c26439a3a38f4007289c0a068178502f6970342f3139322e302e322e312f7463702f343030"
    "312f7032702f313244334b6f6f57443365636b69665770526e397751704d4739523968583373443135387a37"
    "457148576d776551414a553553415840064842beb98cbedec7676f2a5fae393388b6274fe6c220d0c5d03a20"
    "8809a3112945de1e6d3171091a21c8d1c13aa4653d48e95403b9231602ed725985107108"
)


def peer(number: int) -> PeerKey:
    """A holder's key."""
    return PeerKey(HOLDERS[number].neuron)


def scope() -> Scope:
    """Of the first token."""
    ops = Op.FETCH | Op.ANNOUNCE | Op.DELEGATE
    return Scope(GROUP, GROUP, ops, 1, TIME_S, TIME_S + 86400)


def chains() -> list[Chain]:
    """One token with no limit, two with all of them, three."""
    ids = [make.seed(f"token {number}", 16) for number in range(3)]
    one = grant(ISSUER, peer(0), scope(), TIME_S, ids[0])
    less = replace(
        scope(),
        ops=Op.FETCH | Op.DELEGATE,
        audience=NEURON.neuron,
        not_before_s=TIME_S + 60,
        expires_s=TIME_S + 3600,
        model_id=make.MODEL,
        roots=frozenset(make.seed(f"root {number}", 32) for number in range(8)),
        bytes_per_hour=2**30,
    )
    two = attenuate(one, HOLDERS[0], peer(1), less, TIME_S, ids[1])
    least = replace(less, ops=Op.FETCH, bytes_per_hour=0, roots=frozenset([min(less.roots or ())]))
    three = attenuate(two, HOLDERS[1], peer(2), least, TIME_S, ids[2])
    return [one, two, three]


def _token(chain: Chain, number: int) -> make.Json:
    claims = chain.tokens[number].claims
    limits = claims.scope
    return {
        "issuer": claims.issuer.hex(),
        "holder": claims.holder.hex(),
        "group": limits.group.hex(),
        "audience": limits.audience.hex(),
        "ops": int(limits.ops),
        "epoch": limits.epoch,
        "issued": claims.issued_s,
        "not_before": limits.not_before_s,
        "expires": limits.expires_s,
        "token_id": claims.token_id.hex(),
        "model": limits.model_id.hex() if limits.model_id else None,
        "roots": None if limits.roots is None else [root.hex() for root in sorted(limits.roots)],
        "bytes_per_hour": limits.bytes_per_hour,
        "parent": claims.parent.hex() if claims.parent else None,
    }


def _capability() -> make.Json:
    revoked = Revoked(
        ISSUER.neuron,
        7,
        TIME_S,
        2,
        frozenset([make.seed("token 1", 16)]),
        frozenset([peer(0), peer(2)]),
    )
    return {
        "_comment": "Signed by seed('issuer', 32), then seed('holder 0', 32) and so on.",
        "chains": [
            {
                "encoding": chain.encoding.hex(),
                "tokens": [_token(chain, number) for number in range(len(chain.tokens))],
            }
            for chain in chains()
        ],
        "revoked": {
            "encoding": sign_revoked(ISSUER, revoked).hex(),
            "sequence": 7,
            "time": TIME_S,
            "min_epoch": 2,
            "tokens": [token.hex() for token in sorted(revoked.tokens)],
            "holders": [holder.hex() for holder in sorted(revoked.holders)],
        },
    }


def _sealed(epoch: Epoch, particle: bytes, size_bytes: int) -> make.Json:
    sealed = seal(epoch, particle, size_bytes)
    return {
        "epoch": epoch.number,
        "particle": particle.hex(),
        "name": digest(particle).hex(),
        "size": size_bytes,
        "sealed": sealed.hex() if len(sealed) < 1024 else digest(sealed).hex(),
        "sealed_id": sealed_id(epoch.epoch_id, sealed).hex(),
    }


def _group() -> make.Json:
    before = make.seed("before", 32)
    record = make.seed("record", 100)
    card = sign_card(NEURON, peer(0), BOX.key, TIME_S)
    return {
        "_comment": "Epoch n has key seed('epoch n', 32), the group secret seed('group secret', "
        "32). sealed: the ciphertext, or BLAKE3 of one that is long. The grant is for the card, "
        "whose box key has the private half seed('box', 32).",
        "issuer": ISSUER.neuron.hex(),
        "group": GROUP.hex(),
        "secret_id": secret_id(SECRET).hex(),
        "domain": {
            "before": before.hex(),
            "block": domain_block(BlockId(before), SECRET).hex(),
            "window": domain_window(WindowId(before), SECRET).hex(),
            "prefix": domain_prefix(PrefixKey(before), SECRET).hex(),
        },
        "epochs": [
            {
                "number": epoch.number,
                "epoch_id": epoch.epoch_id.hex(),
                "k_id": epoch.k_id.hex(),
                "k_enc": epoch.k_enc.hex(),
                "lookup": epoch.lookup_key(before).hex(),
                "statement": said.hex(),
            }
            for epoch, said in zip(EPOCHS, STATEMENTS, strict=True)
        ],
        "sealed": [
            _sealed(EPOCHS[0], b"", 0),
            _sealed(EPOCHS[0], make.seed("block", 300), 320),
            _sealed(EPOCHS[1], make.seed("block", 300), 320),
            _sealed(EPOCHS[1], make.seed("block", 320), 320),
            _sealed(EPOCHS[1], record, record_bytes(record)),
        ],
        "card": {
            "encoding": card.hex(),
            "text": as_text(CARD_TEXT, card),
            "neuron": NEURON.neuron.hex(),
            "peer": peer(0).hex(),
            "box": BOX.key.hex(),
            "time": TIME_S,
        },
        "grant": {"encoding": GRANT.hex(), "text": as_text(GRANT_TEXT, GRANT)},
    }


def build() -> dict[str, make.Json]:
    """File name to content."""
    return {"capability.json": _capability(), "group.json": _group()}


def main() -> None:
    """Write both files."""
    for name, content in build().items():
        (make.HERE / name).write_text(make.render(content), encoding="ascii")


if __name__ == "__main__":
    main()
