"""gliad: all concurrency, all policy. trio; never torch, never a tokenizer."""
