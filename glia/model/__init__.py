"""A model as files: weights' names and bytes, vocabulary, tokenizer, chat template. No torch."""
