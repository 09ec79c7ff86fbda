"""Tokens in; tokens and sealed windows out. Its own process (`python -m glia.engine`)."""
