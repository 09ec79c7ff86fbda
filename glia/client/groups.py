"""Calls about groups: who may read what only some may."""

from __future__ import annotations

from glia.client.caller import Caller, OnProgress
from glia.graph.ids import ModelId
from glia.graph.scope import Op
from glia.local import group_values
from glia.local import messages as m


class GroupCalls(Caller):
    """Groups are named as people name them here, or by how their ids begin.

    All but `groups` raise NotFound where this node is in no such group.
    """

    def groups(self) -> list[group_values.GroupValue]:
        """All groups that this node is in."""
        return self._call(m.Groups(self._id()), m.GroupsReply).groups

    def group(self, group: str) -> group_values.GroupValue:
        """One of them."""
        return self._one(m.ShowGroup(self._id(), group))

    def create_group(self, name: str) -> group_values.GroupValue:
        """Make a group. Raises: BadRequest (there is one of that name), QuotaExceeded."""
        return self._one(m.CreateGroup(self._id(), name))

    def rotate_group(self, group: str) -> group_values.GroupValue:
        """Begin a new epoch. Raises: NotPermitted (another node made the group)."""
        return self._one(m.RotateGroup(self._id(), group))

    def leave_group(self, group: str, on_progress: OnProgress | None = None) -> m.LeftReply:
        """Erase what is here of a group, and forget its secrets.

        Raises: ConversationBusy (something is being answered in it).
        """
        return self._call(m.LeaveGroup(self._id(), group), m.LeftReply, on_progress)

    def card(self) -> str:
        """What to hand to whoever is to grant this node something. Raises: NotPermitted
        (offline)."""
        return self._call(m.Card(self._id()), m.CardReply).card

    def join_group(self, source: str) -> list[group_values.GroupValue]:
        """Become a member. Args: source: a grant's text, or an address or id of a peer.

        Returns: what was joined; nothing where that peer grants this node nothing.
        Raises: BadRequest, MalformedParticle (a grant for another), NetworkError, NotPermitted.
        """
        return self._call(m.JoinGroup(self._id(), source), m.GroupsReply).groups

    def grant(
        self,
        group: str,
        who: str,
        ops: Op = Op.FETCH,
        *,
        model_id: ModelId | None = None,
        expires_s: int | None = None,
        bytes_per_hour: int | None = None,
    ) -> m.GrantReply:
        """Grant a neuron, a peer or whoever a card is of something, in place of what it had.

        Raises: NotPermitted (this node may not), BadRequest, NotFound, QuotaExceeded.
        """
        call = m.Grant(self._id(), group, who, int(ops), model_id, expires_s, bytes_per_hour)
        return self._call(call, m.GrantReply)

    def revoke(self, group: str, who: str) -> group_values.GroupValue:
        """Take back what was granted, or one token. Raises: NotFound, NotPermitted."""
        return self._one(m.Revoke(self._id(), group, who))

    def _one(self, call: m.Call) -> group_values.GroupValue:
        (group,) = self._call(call, m.GroupsReply).groups
        return group
