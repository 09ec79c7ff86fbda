"""The nouns: frozen values and their bytes. Pure: no torch, no trio, no I/O."""
