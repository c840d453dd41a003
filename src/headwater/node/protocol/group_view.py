"""What can be seen of shared groups: who is in them, what each got, and what the dispatcher believes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, field
from typing import TYPE_CHECKING, cast

from headwater.metric import counter, gauge
from headwater.routing.dispatcher import Member
from headwater.routing.shared import Group
from headwater.session.session import Session

if TYPE_CHECKING:
    from headwater.node.protocol.server import Server


@dataclass(frozen=True)
class MemberView:
    client_id: str
    online: bool
    ready: bool
    """Whether it has room: its window is open and its socket takes bytes."""
    sent: int
    """Messages it was given since it joined."""
    in_flight: int
    """Of those with QoS 1 or 2, the ones it has not acknowledged."""
    waiting: int | None
    """Messages that wait at the client, as it last reported; None: it does not report."""
    weight: int
    reported_seconds: float | None = None
    """Seconds for a message, as it last reported; None: it has not."""
    advised: float = 1.0
    """So many times its weight, by advice from outside that is in force (docs/advice.md)."""
    believed: dict[str, float] = field(default_factory=dict)
    """What the dispatcher believes of it: `seconds_per_message`, `seconds_of_work`, `seconds_away`."""


@dataclass(frozen=True)
class ElsewhereView:
    """A group's members at another node of the cluster, as that one has told."""

    node: str
    is_linked: bool
    members: int
    online: int
    credit: int
    """Messages that they had room for."""
    sent: int
    """Messages that went there from here, since the link is up."""
    under_way: int
    """Of these, the ones that the node had not got when it last told."""


@dataclass(frozen=True)
class GroupView:
    name: str
    """As its members wrote it, `$share/…`."""
    dispatcher: str
    sent: int = counter("Messages given to members.", default=MISSING, name="shared_group_messages_sent")
    waiting: int = gauge("Messages that no member has room for.", default=MISSING, name="shared_group_waiting_messages")
    members: list[MemberView] = gauge(
        "Members: with room, without it, and away.",
        default=MISSING,
        name="shared_group_members",
        labels=("state",),
        samples=lambda group: {
            ("ready",): sum(each.ready for each in group.members),
            ("busy",): sum(each.online and not each.ready for each in group.members),
            ("away",): sum(not each.online for each in group.members),
        },
    )

    elsewhere: list[ElsewhereView] = gauge(
        "Members at other nodes of the cluster that are there.",
        default=list,
        name="shared_group_members_elsewhere",
        labels=("node",),
        samples=lambda group: {(each.node,): each.online for each in group.elsewhere},
    )

    @property
    def online(self) -> int:
        return sum(member.online for member in self.members)


def view_groups(server: Server, most_members: int | None = None) -> list[GroupView]:
    """All groups, each with its members or the first of them."""
    return [_view(server, group, most_members) for group in server.router.groups.all()]


def merged_groups(groups: Sequence[GroupView]) -> list[GroupView]:
    """Parts of a group that several processes of one node have (node/workers) are one."""
    found: dict[str, GroupView] = {}
    for group in groups:
        other = found.get(group.name)
        if other is None:
            found[group.name] = group
        else:
            members = [*other.members, *group.members]
            sent, waiting = other.sent + group.sent, other.waiting + group.waiting
            found[group.name] = GroupView(group.name, other.dispatcher, sent, waiting, members)
    return list(found.values())


def views_in_steps(server: Server, most: int) -> Iterator[GroupView | None]:
    """The first groups with all their members. None: a member was looked at, and others may have their turn."""
    for group in server.router.groups.all()[:most]:
        members = []
        for member in group.members():
            members.append(_view_member(server, group, member))
            yield None
        yield _made(server, group, members)


def _view(server: Server, group: Group, most_members: int | None) -> GroupView:
    members = [_view_member(server, group, member) for member in group.members()[:most_members]]
    return _made(server, group, members)


def _made(server: Server, group: Group, members: list[MemberView]) -> GroupView:
    elsewhere = [ElsewhereView(*each) for each in server.sharing.elsewhere.nodes(group)] if group.is_held else []
    waiting = server.sharing.waiting(group)
    return GroupView(group.name, group.dispatcher.name, group.sent_messages, waiting, members, elsewhere)


def _view_member(server: Server, group: Group, member: Member) -> MemberView:
    return MemberView(
        client_id=cast(Session, member.key).client_id,
        online=member.online,
        ready=member.online and member.ready,
        sent=member.sent_messages,
        in_flight=member.in_flight,
        waiting=member.waiting if member.waiting >= 0 else None,
        weight=member.weight,
        reported_seconds=member.reported_seconds or None,
        advised=member.advised,
        believed=group.dispatcher.beliefs(member, server.hot.now),
    )
