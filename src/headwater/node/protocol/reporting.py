"""Status reports: granted at CONNECT, taken out of PINGREQs, told to the groups of the client (docs/status-reports.md).

    PINGREQ with a body -> in time? -> short enough? -> decoded -> read -> each of the client's groups, PINGRESP

What is cheap is asked first, so that reports that nobody wants (too many, too long) cost as little as a plain PINGREQ.
A report that cannot be believed is ignored and counted, and the connection goes on: only one that cannot be parsed as
a packet ends it. What a believed report can do at most is the affair of the dispatchers.
"""

from __future__ import annotations

import logging
from typing import Final

from headwater.node.plane.channel import Channel
from headwater.node.protocol.core import Core
from headwater.routing.reports import LONGEST_REPORT, read_report
from headwater.session.report_grant import ReportGrant
from headwater.session.session import Session
from headwater.wire.packets import V5, Connect, Pingresp, Properties
from headwater.wire.status import consent, decode_status, interval_of

log = logging.getLogger("headwater.reporting")

LONGEST_BODY: Final = 2 * LONGEST_REPORT
"""Bytes of User Properties and payload. A longer report is not even parsed."""


class Reporting:
    def __init__(self, core: Core) -> None:
        self.core = core
        config = core.config
        self.shortest = max(1, round(config.report_min_interval * 1000.0)) if config.status_reports else 0
        """Milliseconds between two reports of a client; 0: nobody may report."""

    # ---- consent -----------------------------------------------------------------------------------------------

    def grant(self, channel: Channel, packet: Connect, grants: Properties) -> None:
        """Answer a CONNECT that asks for it; without that CONNACK is what it always was."""
        longest = interval_of(packet.properties) if packet.version == V5 else 0
        if longest and self.shortest:
            channel.report_grant = ReportGrant(longest / 1000.0, self.shortest / 1000.0)
            grants.user_properties = [*(grants.user_properties or []), consent(self.shortest)]

    def withdraw(self, channel: Channel, grants: Properties) -> bool:
        """[MQTT-3.2.2-20] The answer makes CONNACK too large for the client: leave it out. False if there was none."""
        if channel.report_grant is None:
            return False
        channel.report_grant = None
        grants.user_properties = None
        return True

    # ---- reports -----------------------------------------------------------------------------------------------

    def packet(self, channel: Channel, grant: ReportGrant, body: bytes) -> None:
        """A PINGREQ with a body, from a client that was granted it."""
        core = self.core
        stats = core.stats
        stats.reports += 1
        if not grant.may_come(core.hot.now):
            stats.reports_early += 1
        elif len(body) > LONGEST_BODY:
            self._ignore(channel, grant, f"longer than {LONGEST_BODY} bytes")
        else:
            report = decode_status(body)
            hooks = core.hooks
            if hooks.slow:
                report = hooks.transform("packet_read", report, channel)
            self._take(channel, grant, report.payload)
            if hooks.slow:
                hooks.tell("packet_processed", channel, report)
        core.send(channel, Pingresp())

    def _take(self, channel: Channel, grant: ReportGrant, payload: bytes) -> None:
        session = channel.session
        assert session is not None
        report = read_report(payload)
        if report.problem:
            self._ignore(channel, grant, report.problem)
            return
        core = self.core
        for group in core.router.groups.of(session):
            member = group.member(session)
            assert member is not None
            member.report_interval = grant.longest
            group.reported(member, report.waiting, report.seconds_per_message, core.hot.now)
        core.hooks.tell("reported", session.client_id, report.waiting, report.seconds_per_message)

    def _ignore(self, channel: Channel, grant: ReportGrant, problem: str) -> None:
        self.core.stats.reports_bad += 1
        if not grant.complained:
            grant.complained = True
            log.info(
                "a status report of %r (%s) is ignored, as all such: %s", channel.client_id, channel.address, problem
            )

    def ended(self, session: Session) -> None:
        """A connection that could report has ended: what it reported is not true of the next one."""
        for group in self.core.router.groups.of(session):
            member = group.member(session)
            assert member is not None
            member.report_interval = 0.0
            member.waiting = -1
            member.reported_seconds = 0.0
            member.sent_since_report = 0
