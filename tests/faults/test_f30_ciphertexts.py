"""F30: who has ciphertexts without the key opens none and checks all; so does who was removed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from glia.errors import HashMismatch
from glia.graph.encrypted import decrypt_window, encrypt_window, open_block
from glia.graph.group import Epoch, block_bytes
from glia.graph.ids import WindowId, digest
from tests.builders import TINY, make_chain

EPOCHS = [Epoch(number, bytes([number]) * 32) for number in (1, 2)]
NUM = 500  # windows of two blocks each


@pytest.mark.spec(49)
@pytest.mark.fault("F30")
def test_a_holder_without_the_key_opens_none_of_1000_and_verifies_all() -> None:
    chain = make_chain(NUM)
    num_opened = num_verified = num_read = 0
    prev = WindowId(bytes(32))
    for record, particles in zip(chain.records, chain.particles, strict=True):
        sealed = encrypt_window(EPOCHS[1], record, particles, prev, block_bytes(TINY))
        prev = sealed.window.window_id
        for key in (EPOCHS[0],):  # of the epoch that a removed member had
            for particle, name in zip(sealed.particles, record.blocks, strict=True):
                try:
                    num_opened += bool(open_block(key, particle, name))
                    decrypt_window(key, sealed.window)
                except HashMismatch:
                    num_verified += digest(particle) in sealed.window.blocks
        for particle, name in zip(sealed.particles, record.blocks, strict=True):
            num_read += digest(open_block(EPOCHS[1], particle, name)) == name
        assert decrypt_window(EPOCHS[1], sealed.window) == record
    print(f"opened_without_key {num_opened} 0 {'pass' if not num_opened else 'fail'}")
    print(f"verified_by_name {num_verified} 1000 {'pass' if num_verified == 1000 else 'fail'}")
    assert (num_opened, num_verified, num_read) == (0, 1000, 1000)


def test_equal_blocks_are_one_in_an_epoch_and_nothing_to_each_other_beyond() -> None:
    chain = make_chain(20)
    found = [
        [
            encrypt_window(epoch, record, particles, WindowId(bytes(32)), block_bytes(TINY))
            for record, particles in zip(chain.records, chain.particles, strict=True)
        ]
        for epoch in (*EPOCHS, EPOCHS[0])
    ]
    assert found[0] == found[2]
    names = [{name for each in one for name in each.window.blocks} for one in found]
    assert not names[0] & names[1]
    for one, two in pairwise(found[0]):
        assert one.window.alias != two.window.alias
