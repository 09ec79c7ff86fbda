"""The network of a node: one port (`host`), the libp2p adapter behind it, and what is said over it.

Nothing here opens a nursery or knows where blocks are kept: `daemon` gives it both.
"""
