"""Vectors of the formats, the command that makes them, and a reader that shares no code."""
