"""What must hold between two turns of a broker, whatever clients did: all that is derived is computed again."""

from __future__ import annotations

from typing import cast

from headwater.message import NEVER
from headwater.node.access.quotas import FREE_IDS, RECEIVED_SIZE, session_size, subscription_size
from headwater.node.destinations.destination import Destination, Fanout
from headwater.node.destinations.groups import SharedGroups
from headwater.node.destinations.members import Members
from headwater.node.destinations.recipients import Recipients
from headwater.node.plane.channel import Channel
from headwater.node.protocol.retained_sender import pending_of
from headwater.node.protocol.server import Server
from headwater.node.protocol.sharing import has_room
from headwater.routing.dispatcher import Member
from headwater.routing.reports import LONGEST_TIME, MOST_WAITING
from headwater.session.connection import CLOSING, CONNECTED, alias_size
from headwater.session.session import Session
from headwater.wire.primitives import FOR_EVER


def check(server: Server) -> None:
    """Raise AssertionError where a broker's state contradicts itself. Call it after a turn, not within one."""
    assert server.stats.failures == 0, "dealing with a packet raised"
    assert not server.hot.open and not server.hot.dirty, "a turn ended with something unsent"
    for channel in server.channels:
        _check_channel(server, channel)
    for session in server.sessions.values():
        _check_session(server, session)
    _check_budget(server)
    _check_quotas(server)
    _check_groups(server)
    _check_subscriptions(server)
    _check_timers(server)
    for topic, fanout in server.hot.fanouts.topics.items():
        _check_fanout(server, topic, fanout)
    connected = [channel for channel in server.channels if channel.state == CONNECTED]
    assert server.attaching.connected == len(connected)


def _check_channel(server: Server, channel: Channel) -> None:
    assert channel.fd >= 0, "a closed channel is still served"
    assert not channel.out, "a turn ended with bytes that were not handed to the socket"
    waiting = sum(len(piece) for piece in channel.backlog or ())
    assert channel.backlog_size == waiting
    assert (channel.backlog is None) == (waiting == 0)
    assert channel.need == 0 or channel.have == sum(len(part) for part in channel.parts or ())
    assert channel.need == 0 or channel.busy or channel.have < channel.need
    if channel.state == CONNECTED:
        session = channel.session
        assert session is not None and session.connection is channel
        assert server.sessions[session.client_id] is session
        outbound = session.outbound
        if outbound.waiting() or outbound.unsent or channel.congested or session.pending_retained is not None:
            assert channel.held, "something waits, but what comes next would overtake it"
    if channel.state == CLOSING:
        assert channel.session is None
        assert channel.need == 0, "a closing channel still collects a packet"


def _check_session(server: Server, session: Session) -> None:
    outbound = session.outbound
    assert server.sessions[session.client_id] is session
    assert outbound.queued_bytes == sum(delivery.message.size() for delivery in outbound.queue or ())
    assert outbound.waiting() <= outbound.max_messages
    assert outbound.queued_bytes <= outbound.max_bytes
    assert set(outbound.unsent) <= set(outbound.flights)
    assert all(0 < packet_id < 65536 for packet_id in outbound.flights)
    if session.connection is None:
        assert outbound.quota == 0
        assert session.expiry_interval > 0
        assert (session in server.ending.expiries) == (session.expiry_interval != FOR_EVER)
        assert (session.will is not None) == (session in server.ending.wills)
    else:
        assert session.connection in server.channels
        sent = len(outbound.flights) - len(outbound.unsent)
        assert outbound.quota == outbound.window - sent, "the quota lost count"
        released = sum(flight.released for flight in outbound.flights.values())
        assert sent <= max(outbound.window, released)
        assert session not in server.ending.expiries
        assert session not in server.ending.wills


def _check_groups(server: Server) -> None:
    """What a dispatcher believes to be under way at a member is really there."""
    for session in server.sessions.values():
        outbound = session.outbound
        for group in server.router.groups.of(session):
            member = group.member(session)
            assert member is not None
            _check_reports(session, member)
            flying = sum(flight.group is group for flight in outbound.flights.values())
            waiting = sum(each.group is group and each.qos > 0 for each in outbound.queue or ())
            assert member.in_flight <= flying + waiting, "a delivery that has ended is still counted"
            channel = cast("Channel | None", session.connection)
            if channel is not None and not member.ready:
                assert channel.awaited, "a group waits for room that nobody will tell of"
    for group, queue in server.sharing.queues.items():
        assert server.router.groups.get(group.share, group.filter) is group, "something waits in a group that has ended"
        assert queue.waiting() > 0
        assert queue.queued_bytes == sum(delivery.message.size() for delivery in queue.queue or ())
        for member in group.members():
            assert not (member.online and has_room(member)), "something waits that a member could take"


def _check_reports(session: Session, member: Member) -> None:
    """What was reported is of this connection, and possible."""
    grant = None if session.connection is None else session.connection.report_grant
    assert grant is not None or (member.waiting, member.report_interval) == (-1, 0.0)
    assert -1 <= member.waiting <= MOST_WAITING and 0.0 <= member.reported_seconds <= LONGEST_TIME / 1000.0


def _check_budget(server: Server) -> None:
    queued = sum(
        session.outbound.queued_bytes + session.outbound.flying_bytes() for session in server.sessions.values()
    )
    unsent = sum(channel.backlog_size for channel in server.channels)
    collecting = sum(channel.counted for channel in server.channels if channel.known)
    shared = sum(queue.queued_bytes for queue in server.sharing.queues.values())
    noted = sum(pending.brought_bytes for session in server.sessions.values() if (pending := pending_of(session)))
    assert server.budget.used == queued + unsent + collecting + shared + noted, "the budget lost count"
    assert server.budget.sockets == unsent
    strangers = [channel for channel in server.channels if not channel.known]
    assert server.strangers.used == sum(channel.charge for channel in strangers), "strangers' memory lost count"
    assert set(server.strangers.everybody) == set(strangers)


def _check_quotas(server: Server) -> None:
    """What sessions keep, counted anew."""
    quotas = server.access.quotas
    users: dict[str, int] = {}
    for session in server.sessions.values():
        size = session_size(session.client_id, session.username)
        size += sum(subscription_size(each) for each in session.subscriptions.values())
        size += 0 if session.will is None else session.will.size()
        size += (session.received_room - FREE_IDS) * RECEIVED_SIZE
        channel = cast("Channel | None", session.connection)
        if channel is not None:
            aliases = [*(channel.aliases_in or {}).values(), *(channel.aliases_out or {})]
            size += sum(alias_size(topic) for topic in aliases)
        assert session.kept_bytes == size, "what a session keeps lost count"
        if session.username is not None:
            users[session.username] = users.get(session.username, 0) + size
    assert quotas.used == sum(session.kept_bytes for session in server.sessions.values())
    assert {user: usage.used for user, usage in quotas.users.items()} == users
    for usage in quotas.users.values():
        assert usage.queues.used == sum(session.outbound.queued_bytes for session in usage.sessions.values())
    retained = server.router.retained
    assert retained.used == sum(message.size() for message in retained.some(0, len(retained)))


def _check_subscriptions(server: Server) -> None:
    wanted = {
        (session, name)
        for session in server.sessions.values()
        for name, subscription in session.subscriptions.items()
        if subscription.share is None
    }
    router = server.router
    held = {(session, filter) for filter in router.trie.filters() for session in router.trie.get(filter) or ()}
    assert held == wanted, "the trie has other subscriptions than the sessions"
    shared = 0
    for session in server.sessions.values():
        for subscription in session.subscriptions.values():
            if subscription.share is not None:
                shared += 1
                group = router.groups.get(subscription.share, subscription.filter)
                assert group is not None
                member = group.member(session)
                assert member is not None and member.online == session.online
    assert server.subscribing.count == len(wanted) + shared
    for session in server.sessions.values():
        owed = {name for name, subscription in session.subscriptions.items() if subscription.retained_pending}
        pending = pending_of(session)
        assert owed == set(() if pending is None else pending.subscriptions), "who is owed retained messages"
        assert pending is None or pending.subscriptions
        if pending is not None and session.connection is not None and pending.worker is None:
            waits = session.outbound.flights or session.outbound.waiting() or pending.retries
            assert waits, "retained messages wait for nothing"


def _check_timers(server: Server) -> None:
    """Cancelled timers may stay for a while, others must have an owner."""
    timers = server.timers
    alive = [timer for timer in timers._heap if timer.callback is not None]
    owners = len(server.stalls) + len(server.ending.expiries) + len(server.ending.wills)
    owners += server.sampling.timer is not None
    assert (server.sampling.timer is None) == (server.sampling.watched == [])
    assert len(alive) <= owners + len(server.channels) + 2, "timers without an owner"
    assert timers.soonest <= min((timer.when for timer in alive), default=NEVER)


def _check_fanout(server: Server, topic: bytes, fanout: Fanout) -> None:
    """What the hot path remembers of a topic is what it would find out now."""
    local = server.hot.fanouts.local
    name = topic.decode()
    fresh = local.sorted(server.router.route(name))
    assert [type(each) for each in fanout.destinations] == [type(each) for each in fresh]
    for remembered, found in zip(fanout.destinations, fresh, strict=True):
        assert _parts(remembered) == _parts(found)
        if isinstance(remembered, Members):
            assert all(channel.state == CONNECTED for channel in (*remembered.members4, *remembered.members5))
            assert not remembered.pieces4 and not remembered.pieces5 and remembered.count == remembered.commit == 0
            assert not remembered.dirty and not remembered.claimed
    again = Fanout(fanout.store, fresh, len(fresh))
    for flag in ("somebody", "in_runs", "durable", "promises", "owed", "drops_properties"):
        assert getattr(fanout, flag) == getattr(again, flag), flag


def _parts(destination: Destination) -> dict[str, set[object]]:
    if isinstance(destination, Members):
        names = ("members4", "members5", "unacked4", "unacked5", "acked4", "acked5")
        return {name: set(getattr(destination, name)) for name in names}
    if isinstance(destination, Recipients):
        lists = ("special", "absent", "unreachable")
        return {name: {recipient.session for recipient in getattr(destination, name)} for name in lists}
    assert isinstance(destination, SharedGroups)
    return {"groups": set(destination.groups)}
