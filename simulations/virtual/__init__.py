"""Many nodes on an internet in a dict (p2p/testing), on virtual time.

Real: what nodes decide and say, their frames, hashes, signatures and time-outs. Modelled:
roads, connections, and the directory's messages (p2p/testing/records.py).
"""
