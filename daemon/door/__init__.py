"""The HTTP door: OpenAI's API and metrics on a loopback address (daemon/spec/http.md).

A process of its own. It tokenises, and asks gliad over the local socket like any client.
"""
