"""The memory: a prompt's K/V cache as named, verified blocks.

Where to look, from the nouns outwards:

    errors   the whole error tree
    graph    the nouns and their bytes: ids, profile, block, window, prefix keys, chain
    model    a model as files: manifest, model_id, tokenizer (no torch)
    store    L2: names on disk (LevelDB index + segments), and the same in memory
    local    frames and messages of the local API (sans-IO)
    client   the public, synchronous client of the local API
    kv       L0: slots, rotation, attention (torch)
    engine   sequences, scheduling, sealing, the Hugging Face adapter (torch)
    spec     one page a format

This package imports nothing, so `glia.graph` stays free of torch.
"""
