"""L0: addresses without names. Slots, rotation, attention by slot.

Nothing here may import a name (an id, a block, a window): the import rule of
tests/test_architecture.py is "the GPU never sees a hash".
"""
