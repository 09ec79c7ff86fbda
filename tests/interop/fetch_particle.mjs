// What a program that is not ours does: it has one address and the CID of a window record.
//
//     node fetch_particle.mjs ADDRESS CID
//
// It connects, identifies, pings, asks the DHT who has the particle, fetches it from there by
// p2p/spec/particle.md, and then all blocks that the record names. Prints what it saw as JSON.

import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { identify } from '@libp2p/identify'
import { kadDHT, passthroughMapper } from '@libp2p/kad-dht'
import { ping } from '@libp2p/ping'
import { tcp } from '@libp2p/tcp'
import { multiaddr } from '@multiformats/multiaddr'
import { blake3 } from '@noble/hashes/blake3.js'
import { createLibp2p } from 'libp2p'
import { CID } from 'multiformats/cid'
import { create as createDigest } from 'multiformats/hashes/digest'

const KAD = '/glia/kad/1.0.0'
const PARTICLE = '/glia/particle/1'
const RAW = 0x55
const BLAKE3 = 0x1e
const SHA2 = 0x12
const MOST_BYTES = 16_778_368
const TIMEOUT_MS = 40_000

const cidOf = (name, hash = BLAKE3) => CID.createV1(RAW, createDigest(hash, name))

// Reads exactly so many bytes of a stream, however they arrive.
class Reader {
  #parts
  #held = Buffer.alloc(0)

  constructor (stream) {
    this.#parts = stream[Symbol.asyncIterator]()
  }

  async read (length) {
    const parts = [this.#held]
    let total = this.#held.length
    while (total < length) {
      const { value, done } = await this.#parts.next()
      if (done) throw new Error(`the stream ended after ${total} of ${length} bytes`)
      parts.push(value.subarray())
      total += value.byteLength
    }
    const all = Buffer.concat(parts)
    this.#held = all.subarray(length)
    return all.subarray(0, length)
  }
}

// One particle, or null where the peer does not have it.
async function ask (stream, reader, cid) {
  const request = Buffer.alloc(4 + cid.bytes.length)
  request.writeUInt32BE(cid.bytes.length)
  request.set(cid.bytes, 4)
  stream.send(request)
  const length = (await reader.read(4)).readUInt32BE()
  if (length === 0) return null
  if (length > MOST_BYTES) throw new Error(`a particle of ${length} bytes`)
  const particle = await reader.read(length)
  if (!Buffer.from(blake3(particle)).equals(cid.multihash.digest)) {
    throw new Error(`not the particle that ${cid} names`)
  }
  return particle
}

// The names in a window record, glia/spec/4-window.md.
function blockNames (record) {
  if (record.toString('latin1', 0, 4) !== 'GWIN') throw new Error('not a window record')
  const start = 120 + 4 * record.readUInt16LE(8)
  return Array.from({ length: record.readUInt16LE(10) }, (_, at) =>
    record.subarray(start + 32 * at, start + 32 * (at + 1)))
}

async function firstProvider (node, cid, signal) {
  for await (const provider of node.contentRouting.findProviders(cid, { signal })) return provider
  throw new Error('the DHT knows no provider')
}

async function main (node, address, cid) {
  const signal = AbortSignal.timeout(TIMEOUT_MS)
  const identified = new Promise(resolve =>
    node.addEventListener('peer:identify', ({ detail }) => resolve(detail), { once: true }))
  const connection = await node.dial(multiaddr(address), { signal })
  const { agentVersion, protocols } = await identified
  const pingMs = await node.services.ping.ping(connection.remotePeer, { signal })

  const provider = await firstProvider(node, cid, signal)
  await node.dial(provider.multiaddrs, { signal })
  const stream = await node.dialProtocol(provider.id, PARTICLE, { signal })
  const reader = new Reader(stream)
  const record = await ask(stream, reader, cid)
  if (record === null) throw new Error('the provider does not have it')
  const blocks = []
  for (const name of blockNames(record)) blocks.push(await ask(stream, reader, cidOf(name)))
  const unknown = await ask(stream, reader, cidOf(Buffer.alloc(32, 7)))
  const otherKind = await ask(stream, reader, cidOf(cid.multihash.digest, SHA2))
  await stream.close({ signal })

  return {
    peer: connection.remotePeer.toString(),
    agentVersion,
    protocols,
    pingMs,
    provider: provider.id.toString(),
    recordBytes: record.length,
    blockBytes: blocks.map(block => block?.length ?? 0),
    absent: [unknown, otherKind]
  }
}

const node = await createLibp2p({
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  services: {
    identify: identify(),
    // The DHT pings too, before it takes a peer; the usual limit of one stream would fail it.
    ping: ping({ maxOutboundStreams: 8 }),
    // The usual mapper leaves out peers on loopback.
    dht: kadDHT({ protocol: KAD, clientMode: true, peerInfoMapper: passthroughMapper })
  }
})
try {
  const [address, cid] = process.argv.slice(2)
  console.log(JSON.stringify(await main(node, address, CID.parse(cid))))
} finally {
  await node.stop()
}
