"""The verbs of `gliad`, a module a group. Each parses its arguments, asks glia.client, shows."""
