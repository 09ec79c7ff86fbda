"""Calls about the node itself: status, models, what is stored, its end."""

from __future__ import annotations

import json

from glia.client.caller import Caller, OnProgress
from glia.local import messages as m
from glia.local import values


class NodeCalls(Caller):
    """What people ask a node about itself."""

    def status(self) -> m.StatusReply:
        """What `gliad status` shows."""
        return self._call(m.Status(self._id()), m.StatusReply)

    def default_visibility(self) -> str:
        """The label of what is said where nobody says who may have it, by the node's settings.

        A message that is sent without one is private all the same.
        """
        return str(json.loads(self.status().settings["conversations.visibility"]))

    def models(self) -> list[values.ModelValue]:
        """All models this node knows by name."""
        return self._call(m.Models(self._id()), m.ModelsReply).models

    def add_model(
        self,
        name: str,
        manifest: str,
        *,
        replace: bool = False,
        on_progress: OnProgress | None = None,
    ) -> values.ModelValue:
        """Register a manifest (TOML text) under a name, after loading the model once.

        Raises: ManifestError, BadRequest (name taken), ModelRefused, BadModelFile.
        """
        call = m.AddModel(self._id(), name, manifest, replace)
        (model,) = self._call(call, m.ModelsReply, on_progress).models
        return model

    def check(self, on_progress: OnProgress | None = None) -> m.CheckReply:
        """Re-verify everything stored."""
        return self._call(m.Check(self._id()), m.CheckReply, on_progress)

    def evict(self, tier: str) -> m.EvictReply:
        """Give back what tier l0 or l1 holds; its bytes go a tier down first."""
        return self._call(m.Evict(self._id(), tier), m.EvictReply)

    def shutdown(self) -> None:
        """Stop gliad; returns when everything acknowledged is on disk."""
        self._call(m.Shutdown(self._id()), m.Done)
