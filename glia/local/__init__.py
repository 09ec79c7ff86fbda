"""The local API between gliad, its engines and its users: frames and messages, sans-IO.

The specification is daemon/spec/local-api.md.
"""
