"""An internet in a dict: the port of p2p/host.py without sockets, on trio's clock.

`simulate` runs a world on virtual time, the same for the same seed; `internet` is the world.
"""
