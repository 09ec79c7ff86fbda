"""Many nodes on an internet in a dict (p2p/testing): what they find while nodes come and go.

Real: what nodes decide and say, their frames, hashes, signatures and time-outs, on virtual
time. Modelled: roads, connections, and the directory's messages (p2p/testing/records.py).
"""
