"""The `$SYS` tree, with the names that people know from Mosquitto.

Load figures are averages over 1, 5 and 15 minutes of counts per minute: exponentially weighted, as of a system's load.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING
from urllib.parse import quote

from headwater import __version__
from headwater.message import Message
from headwater.node.protocol.group_view import GroupView, view_groups
from headwater.node.protocol.statistics import Statistics

if TYPE_CHECKING:
    from headwater.node.protocol.server import Server

MOST_GROUPS = 100
MOST_MEMBERS = 100
"""The first groups, and the first members of each, that are shown one by one."""
MINUTES = (1, 5, 15)
LOADS = {
    "messages/received": "received",
    "messages/sent": "sent",
    "publish/received": "publish_received",
    "publish/sent": "publish_sent",
    "publish/dropped": "dropped",
    "bytes/received": "bytes_received",
    "bytes/sent": "bytes_sent",
    "sockets": "sockets_opened",
    "connections": "sockets_opened",
}


class SysTopics:
    def __init__(self, server: Server, started_at: float) -> None:
        self._server = server
        self._started_at = started_at
        self._last: Statistics | None = None
        self._last_at = started_at
        self._averages: dict[str, float] = {}
        self._shown: dict[str, str] = {}

    def publish(self, now: float) -> None:
        """Publish every figure that changed, retained."""
        statistics = self._server.statistics(now - self._started_at)
        self._server.hooks.tell("sys_info_tick", statistics)
        figures = self._figures(statistics, now)
        figures.update(_group_figures(view_groups(self._server, MOST_MEMBERS)[:MOST_GROUPS]))
        for name in self._shown.keys() - figures.keys():
            figures[name] = ""  # a group or member that is there no longer
        for name, text in figures.items():
            if self._shown.get(name) != text:
                self._shown[name] = text
                topic = "$SYS/broker/" + name
                self._server.publishing.announce(Message(topic, text.encode(), 0, True))
            if not text:
                del self._shown[name]

    def _figures(self, now: Statistics, time: float) -> dict[str, str]:
        figures = {
            "version": f"headwater version {__version__}",
            "uptime": f"{int(now.uptime)} seconds",
            "clients/total": str(now.sessions),
            "clients/connected": str(now.connections),
            "clients/active": str(now.connections),
            "clients/disconnected": str(now.sessions - now.connections),
            "clients/inactive": str(now.sessions - now.connections),
            "clients/maximum": str(now.connections_maximum),
            "clients/expired": str(now.expired),
            "messages/received": str(now.received),
            "messages/sent": str(now.sent),
            "messages/stored": str(now.retained + now.queued),
            "store/messages/count": str(now.retained + now.queued),
            "store/messages/bytes": str(now.queued_bytes),
            "publish/messages/received": str(now.messages_received),
            "publish/messages/sent": str(now.messages_sent),
            "publish/messages/dropped": str(now.dropped),
            "bytes/received": str(now.bytes_received),
            "bytes/sent": str(now.bytes_sent),
            "retained messages/count": str(now.retained),
            "subscriptions/count": str(now.subscriptions),
            "shared_subscriptions/count": str(now.shared_groups),
            "reports/received": str(now.reports),
            "reports/ignored/bad": str(now.reports_bad),
            "reports/ignored/early": str(now.reports_early),
        }
        if self._server.room is not None:
            figures["disk/free"] = str(now.disk_free)
            figures["disk/reserve"] = str(now.disk_reserve)
            figures["disk/paused"] = "1" if now.disk_paused else "0"
            figures["clients/paused"] = str(now.publishers_paused)
        figures.update(_store_figures(self._server))
        figures.update(_advice_figures(self._server))
        figures.update(self._loads(now, time))
        return figures

    def _loads(self, now: Statistics, time: float) -> dict[str, str]:
        elapsed = time - self._last_at
        last = self._last or Statistics()
        self._last, self._last_at = now, time
        shown = {}
        for name, field in LOADS.items():
            attribute = {"publish_received": "messages_received", "publish_sent": "messages_sent"}.get(field, field)
            per_minute = (getattr(now, attribute) - getattr(last, attribute)) * 60 / elapsed if elapsed > 0 else 0.0
            for minutes in MINUTES:
                key = f"load/{name}/{minutes}min"
                weight = math.exp(-elapsed / (60 * minutes))
                average = per_minute + weight * (self._averages.get(key, 0.0) - per_minute)
                self._averages[key] = average
                shown[key] = f"{average:.2f}"
        return shown


def _store_figures(server: Server) -> dict[str, str]:
    """Of the delivery store, if there is one."""
    coordinator = server.coordinator
    if coordinator is None:
        return {}
    return {
        "store/positions/first": str(coordinator.store.first),
        "store/positions/next": str(coordinator.store.next),
        "store/positions/taken": str(coordinator.taken_messages),
        "store/pending/bytes": str(coordinator.pending),
    }


def _advice_figures(server: Server) -> dict[str, str]:
    """Of advice, if any is taken: what is in force, and what became of the messages."""
    advising = server.advising
    if advising is None:
        return {}
    figures = {f"advice/{outcome}": str(count) for outcome, count in advising.counts.items()}
    for advice in advising.in_force()[:MOST_GROUPS]:
        figures[f"advice/{advice.kind}/{quote(advice.subject, safe='')}"] = json.dumps(asdict(advice))
    return figures


def _group_figures(groups: list[GroupView]) -> dict[str, str]:
    """Under `shared/`, the group's name and its filter, each one level (`/`, `+` and `#` as %2F, %2B and %23)."""
    figures: dict[str, str] = {}
    for group in groups:
        _, share, filter = group.name.split("/", 2)
        place = f"shared/{quote(share, safe='')}/{quote(filter, safe='')}"
        figures[f"{place}/dispatcher"] = group.dispatcher
        figures[f"{place}/messages/sent"] = str(group.sent)
        figures[f"{place}/messages/waiting"] = str(group.waiting)
        for member in group.members:
            seen = asdict(member)
            believed = {name: float(f"{value:.4g}") for name, value in seen.pop("believed").items()}
            figures[f"{place}/member/{quote(member.client_id, safe='')}"] = json.dumps({**seen, **believed})
    return figures
