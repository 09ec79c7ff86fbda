"""How much a peer may use of what py-libp2p does not bound itself."""

VERSION = "0.8.1"  # of libp2p: the guards change its insides
KAD_PROTOCOL = "/glia/kad/1.0.0"
MAX_KAD_MESSAGE_BYTES = 64 * 1024
MAX_KAD_RECORD_BYTES = 40 * 1024  # values (p2p/values.py) with their envelope
MAX_KAD_RECORDS = 1024
MAX_KAD_STREAMS = 64
MAX_KAD_STREAMS_PER_PEER = 4
KAD_STREAM_S = 10.0
MAX_WINDOW_BYTES = 1024 * 1024  # of one stream: no peer may send more before it is read
MAX_EXCESS_BYTES = 1024 * 1024  # beyond its windows, before a peer is dropped
MAX_STREAMS = 256  # of one connection, whoever opened them
MAX_NEGOTIATION_BYTES = 16 * 1024
MAX_KNOWN_PEERS = 1000
MAX_MESSAGES_PER_S = 20  # of gossip, from one peer
MAX_BAD_MESSAGES = 10  # then a peer is not listened to for MUTE_S
MUTE_S = 60.0
MAX_TOPIC_BYTES = 128
MAX_TOPICS_PER_PEER = 64
