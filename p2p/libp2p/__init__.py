"""The port of p2p/host.py on py-libp2p: the only place that imports it.

Where that library breaks under a peer that breaks the rules, `p2p/spec/guards.md` says what
is done about it, and which test shows it.
"""
