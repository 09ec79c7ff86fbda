"""The bulk path: sealed records over TCP, with keys agreed on over a libp2p stream (spec/bulk.md).

`server` gives tickets and accepts, `client` asks and dials; either ends up with a `stream`
that keeps the port's Stream, so what is said over it is said as over libp2p.
"""
