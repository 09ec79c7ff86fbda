"""Capabilities and groups against their vectors, readers that share no code, and their pages."""

from __future__ import annotations

import ast
import json
from typing import Any

import cbor2
import pytest
from cwt import COSE, Claims, COSEKey

from glia.errors import BadRequest, MalformedParticle
from glia.graph.capability import parse_chain
from glia.graph.epoch_statement import is_stated
from glia.graph.grant import CARD_TEXT, GRANT_TEXT, of_text, parse_grant
from glia.graph.group import Epoch, GroupSecret, seal, secret_id, unseal
from glia.graph.ids import digest
from glia.graph.member import parse_card
from glia.graph.neuron import NeuronId
from glia.graph.revoked import parse_revoked
from glia.graph.scope import Op
from tests.vectors import group_reference, make, make_group
from tests.vectors.make_group import ISSUER

Json = dict[str, Any]


def load(name: str) -> Json:
    content: Json = json.loads((make.HERE / name).read_text())
    return content


CAPABILITY, GROUP = load("capability.json"), load("group.json")


def test_the_vectors_are_what_the_code_makes() -> None:
    for name, content in make_group.build().items():
        assert (make.HERE / name).read_text() == make.render(content)


def test_the_reader_shares_no_code() -> None:
    tree = ast.parse((make.HERE / "group_reference.py").read_text())
    names = [
        alias.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    assert not [name for name in names if name.split(".")[0] in ("glia", "daemon", "p2p")]


@pytest.mark.spec(49)
@pytest.mark.parametrize("case", CAPABILITY["chains"])
def test_capabilities_read_alike(case: Json) -> None:
    data = bytes.fromhex(case["encoding"])
    ours = parse_chain(data)
    theirs = group_reference.read_chain(data)
    assert ours.encoding == data
    for token, fields, said in zip(ours.tokens, theirs, case["tokens"], strict=True):
        claims, limits = token.claims, token.claims.scope
        assert token.is_signed
        assert fields[8][3] == claims.holder == bytes.fromhex(said["holder"])
        assert fields[1] == claims.issuer.hex() == said["issuer"]
        assert fields[3] == limits.audience.hex() == said["audience"]
        assert (fields[4], fields[5]) == (limits.expires_s, limits.not_before_s)
        assert (fields[4], fields[5]) == (said["expires"], said["not_before"])
        assert fields[100] == limits.ops == Op(said["ops"])
        roots = None if limits.roots is None else sorted(limits.roots)
        assert fields.get(102) == roots
        assert fields.get(101) == limits.model_id
        assert fields.get(103) == limits.bytes_per_hour == said["bytes_per_hour"]
        assert fields.get(105) == claims.parent


@pytest.mark.spec(49)
@pytest.mark.parametrize("case", CAPABILITY["chains"])
def test_a_library_for_cwt_agrees(case: Json) -> None:
    """Each token is a CWT in a COSE_Sign1 to it, and no longer one when a byte is another."""
    for token, said in zip(
        cbor2.loads(bytes.fromhex(case["encoding"])), case["tokens"], strict=True
    ):
        key = COSEKey.new({1: 1, -1: 6, 3: -8, -2: bytes.fromhex(said["issuer"])})
        context = b"glia-cap-v1\0" + bytes.fromhex(said["group"])

        def opened(data: bytes, key: Any = key, context: bytes = context) -> Any:
            message = cbor2.dumps(cbor2.CBORTag(18, cbor2.loads(data)))
            return cbor2.loads(COSE.new().decode(message, [key], external_aad=context))

        claims = opened(token)
        Claims.validate(claims)
        assert claims[4] == said["expires"]
        assert claims[8] == {3: bytes.fromhex(said["holder"])}
        with pytest.raises(Exception, match="verify"):
            opened(token[:-1] + bytes([token[-1] ^ 1]))
        with pytest.raises(Exception, match="verify"):
            opened(token, context=b"glia-cap-v2\0" + context[12:])


def test_revocation_lists_read_alike() -> None:
    case = CAPABILITY["revoked"]
    data = bytes.fromhex(case["encoding"])
    ours = parse_revoked(data, make_group.GROUP)
    theirs = group_reference.read_revoked(data, make_group.GROUP)
    assert [ours.sequence, ours.time_s, ours.min_epoch] == [theirs[2], theirs[3], theirs[4]]
    assert [ours.sequence, ours.time_s, ours.min_epoch] == [7, case["time"], case["min_epoch"]]
    assert sorted(ours.tokens) == theirs[5] == [bytes.fromhex(text) for text in case["tokens"]]
    assert sorted(ours.holders) == theirs[6] == [bytes.fromhex(text) for text in case["holders"]]


def test_names_of_a_domain_and_of_epochs() -> None:
    secret = make.seed("group secret", 32)
    before = bytes.fromhex(GROUP["domain"]["before"])
    for kind in ("block", "window", "prefix"):
        theirs = group_reference.derive(f"glia 2026 v1 group {kind}", before + secret)
        assert theirs.hex() == GROUP["domain"][kind]
    for case in GROUP["epochs"]:
        names = group_reference.epoch_of(make.seed(f"epoch {case['number']}", 32))
        assert [each.hex() for each in names] == [case["epoch_id"], case["k_id"], case["k_enc"]]
        lookup = group_reference.blake3(before, key=names[1]).hexdigest()
        assert lookup == case["lookup"]


@pytest.mark.parametrize("case", GROUP["epochs"])
def test_statements_of_epochs_are_checked_alike(case: Json) -> None:
    """That the issuer signed this number, key and secret, and no other."""
    issuer, secret = ISSUER.neuron, make.seed("group secret", 32)
    number, said = case["number"], bytes.fromhex(case["statement"])
    key = make.seed(f"epoch {number}", 32)

    def holds(
        issuer: bytes = issuer,
        number: int = number,
        key: bytes = key,
        secret: bytes = secret,
        said: bytes = said,
    ) -> bool:
        ours = is_stated(NeuronId(issuer), Epoch(number, key), GroupSecret(secret), said)
        try:
            group_reference.check_statement(issuer, secret, number, key, said)
        except ValueError:
            assert not ours
            return False
        assert ours
        return True

    assert holds()
    assert GROUP["secret_id"] == secret_id(GroupSecret(secret)).hex()
    other = make_group.HOLDERS[0].neuron
    assert not holds(issuer=other)
    assert not holds(number=number + 1)
    assert not holds(number=2**32 - 1)
    assert not holds(key=make.seed("epoch 3", 32))
    assert not holds(secret=bytes(32))
    assert not holds(said=said[:-1] + bytes([said[-1] ^ 1]))


@pytest.mark.parametrize("case", GROUP["sealed"])
def test_ciphertexts_open_alike(case: Json) -> None:
    epoch = make_group.EPOCHS[case["epoch"] - 1]
    particle, name = bytes.fromhex(case["particle"]), bytes.fromhex(case["name"])
    sealed = seal(epoch, particle, case["size"])
    assert case["sealed"] in (sealed.hex(), digest(sealed).hex())
    assert group_reference.open_sealed(epoch.key, sealed, name) == particle
    assert unseal(epoch, sealed, name) == particle
    assert group_reference.sealed_name(epoch.epoch_id, sealed).hex() == case["sealed_id"]


def test_cards_and_grants_read_alike() -> None:
    card, encoding = GROUP["card"], bytes.fromhex(GROUP["card"]["encoding"])
    ours, theirs = parse_card(encoding), group_reference.read_card(encoding)
    assert [ours.neuron, ours.peer, ours.box, ours.time_s] == [theirs[n] for n in range(1, 5)]
    assert [ours.neuron.hex(), ours.box.hex()] == [card["neuron"], card["box"]]
    assert of_text(CARD_TEXT, card["text"]) == encoding
    grant = bytes.fromhex(GROUP["grant"]["encoding"])
    given = parse_grant(grant, make_group.BOX, make_group.peer(0))
    fields, chain, keys = group_reference.read_grant(grant, make.seed("box", 32))
    assert of_text(GRANT_TEXT, GROUP["grant"]["text"]) == grant
    assert fields[1] == given.name == "friends"
    assert tuple(fields[6]) == given.homes
    assert chain[-1][8][3] == given.chain.holder
    assert keys[1] == given.keys.secret == make_group.SECRET
    told = zip(given.keys.epochs, given.keys.statements, strict=True)
    assert keys[2] == [[epoch.number, epoch.key, said] for epoch, said in told]
    assert given.keys.epochs == make_group.EPOCHS


@pytest.mark.parametrize("text", ["", "glia-card:%%", "glia-grant:AAAA", "card"])
def test_text_that_is_no_card(text: str) -> None:
    with pytest.raises((BadRequest, MalformedParticle)) as refused:
        parse_card(of_text(CARD_TEXT, text))
    assert refused.value.message
