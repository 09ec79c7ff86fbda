"""How much a peer may use of what py-libp2p does not bound itself."""

from p2p.rates import Rate

VERSION = "0.8.1"  # of libp2p: the guards change its insides
KAD_PROTOCOL = "/glia/kad/1.0.0"
MAX_KAD_MESSAGE_BYTES = 64 * 1024
MAX_KAD_RECORD_BYTES = 40 * 1024  # values (p2p/values.py) with their envelope
KAD_BYTES_PER_COST = 512  # of a message, beside 1 for each: a link more is a signature more
KAD_PEER = Rate(32.0, 256.0)
KAD_CROWD = Rate(128.0, 1024.0)
KAD_SURE = Rate(2.0, 256.0)
KAD_SHARED = Rate(128.0, 4096.0)
MAX_KAD_STREAMS = 64
MAX_KAD_STREAMS_PER_PEER = 4
KAD_STREAM_S = 10.0
MAX_WINDOW_BYTES = 1024 * 1024  # of one stream: no peer may send more before it is read
MAX_EXCESS_BYTES = 1024 * 1024  # beyond its windows, before a peer is dropped
MAX_STREAMS = 256  # of one connection, whoever opened them
STREAMS_PEER = Rate(32.0, 512.0)  # opened by others
STREAMS_CROWD = Rate(128.0, 2048.0)
STREAMS_SURE = Rate(2.0, 256.0)
STREAMS_SHARED = Rate(256.0, 4096.0)
MAX_NEGOTIATION_BYTES = 16 * 1024
MAX_KNOWN_PEERS = 1000
GOSSIP_PEER = Rate(20.0, 20.0)  # messages, by who hands them on
GOSSIP_CROWD = Rate(80.0, 160.0)
GOSSIP_SURE = Rate(2.0, 20.0)
GOSSIP_SHARED = Rate(256.0, 1024.0)
MAX_BAD_MESSAGES = 10  # then a peer is not listened to for MUTE_S
MUTE_S = 60.0
MAX_TOPIC_BYTES = 128
MAX_TOPICS_PER_PEER = 64
