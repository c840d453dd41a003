"""Figures of a proxy (metric.py says how they are declared)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.metric import counter, gauge

if TYPE_CHECKING:
    from headwater.node.proxy.proxy import Proxy


def _relayed(seen: ProxySeen) -> dict[tuple[str, ...], float]:
    return {("in",): seen.bytes_from_clients, ("out",): seen.bytes_to_clients}


@dataclass
class ProxySeen:
    home_up: bool = gauge("Whether the home broker is connected.", default=False, name="proxy_home_up")
    reconnects: int = counter("Times that the home broker was connected again.", name="proxy_home_reconnects")
    caught: int = counter("Messages that came from the home broker.", name="proxy_messages_caught")
    echoes: int = counter("Of these, echoes of what was handed over.", name="proxy_echoes")
    copies: int = counter("Of these, second copies, while filters that overlap were changed.", name="proxy_copies")
    refused: int = counter("Messages of other nodes that the home broker refused (5.0).", name="proxy_messages_refused")
    given_up: int = counter(
        "Messages of other nodes that were given up, as the home broker ended the connection at them.",
        name="proxy_messages_given_up",
    )
    waiting: int = gauge("Messages that wait for the home broker.", name="proxy_messages_waiting")
    held: int = gauge(
        "Messages of the home broker that wait for room in spools, not acknowledged.", name="proxy_messages_held"
    )
    filters_caught: int = gauge("Filters that the own client has at the home broker.", name="proxy_filters_caught")
    filters_wanted: int = gauge("Filters that the home broker's clients have, each once.", name="proxy_filters_wanted")
    differences: int = counter(
        "Retained messages that were not the same when the home broker came.", name="proxy_retained_differences"
    )
    clients: int = gauge("Connections of clients that are relayed.", name="proxy_connections")
    clients_accepted: int = counter("Connections of clients.", name="proxy_connections_accepted")
    bytes_from_clients: int = counter(
        "Bytes that were relayed.",
        name="proxy_relayed_bytes",
        labels=("direction",),
        samples=_relayed,
    )
    bytes_to_clients: int = counter("Bytes that were relayed to clients.", name="")
    sessions: int = gauge("Sessions at the home broker that outlive their connections.", name="proxy_sessions")
    led: int = counter("Clients that were led to the proxy of their session's broker.", name="proxy_clients_led")
    led_in: int = counter("Clients that other proxies have led here.", name="proxy_clients_led_in")
    lost_homes: int = counter(
        "Clients whose session's proxy could not be reached, and that were refused or began anew.",
        name="proxy_clients_without_home",
        doc="`proxy.sessions` says which.",
    )
    taken_over: int = counter(
        "Connections that were ended because the client has connected at another proxy.",
        name="proxy_clients_taken_over",
    )
    members: int = gauge("Sessions of members of shared groups that the proxy keeps.", name="proxy_group_members")


def see_proxy(proxy: Proxy) -> ProxySeen:
    home, relay = proxy.home, proxy.front.counters
    connection, session = home.connection, home.session
    return ProxySeen(
        home_up=session.connection is not None,
        reconnects=home.reconnects,
        caught=home.messages_caught,
        echoes=home.swallowed,
        copies=home.copied,
        refused=home.refusals,
        given_up=home.suspects.given_up,
        waiting=session.outbound.waiting(),
        held=0 if connection is None else len(connection.held),
        filters_caught=len(home.wanting.catches.at_broker),
        filters_wanted=len(session.subscriptions),
        differences=0 if home.retention is None else home.retention.differences,
        clients=proxy.front.entering.connections,
        clients_accepted=relay.accepted,
        bytes_from_clients=relay.bytes_from_clients,
        bytes_to_clients=relay.bytes_from_broker,
        members=0 if proxy.members is None else proxy.members.count,
        **_led(proxy),
    )


def _led(proxy: Proxy) -> dict[str, int]:
    leading = proxy.leading
    if leading is None:
        return {}
    counters = leading.counters
    return {
        "sessions": len(leading.homes.residents),
        "led": counters.led,
        "led_in": counters.led_in,
        "lost_homes": counters.refused + counters.anew,
        "taken_over": counters.taken_over,
    }
