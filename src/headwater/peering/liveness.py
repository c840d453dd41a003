"""Whether a link makes progress: not only that its socket answers, but that the other data plane deals with frames.

Who has dialed sends a Heartbeat every `interval` seconds, the other side answers at once, and that is answered, too, so
that both measure the way. Each says how many frames of the other its sender has dealt with. A link is SILENT if nothing
has come for `patience` seconds, and STUCK if frames were sent that long ago and the other's number has not grown since:
its process answers, but its loop does not take what it is sent. Either way the link is to be closed. A large frame may
take longer than that: while its bytes come, the receiver of it sends heartbeats, and for who sent it that is progress.
Time in which this node did not look itself (it was stopped, or slow) does not count against the other.
"""

from __future__ import annotations

from typing import Final

from headwater.peering.frames.frame import Heartbeat, MalformedFrame

LIVE: Final = "live"
SILENT: Final = "silent"
STUCK: Final = "stuck"
INTERVAL: Final = 1.0
PATIENCE: Final = 5.0


class Liveness:
    def __init__(self, now: float, interval: float = INTERVAL, patience: float = PATIENCE) -> None:
        self.interval = interval
        self.patience = patience
        self.round_trip: float | None = None
        """Seconds, of the last heartbeat that was echoed."""
        self._sequence = 0
        self._heard = 0
        self._sent: dict[int, float] = {}
        self._processed = 0
        self._quiet_since = now
        self._stuck_since = now
        self._looked = now

    @property
    def processed(self) -> int:
        """Frames that the peer has dealt with, as it says."""
        return self._processed

    def heard(self, now: float) -> None:
        """Something came."""
        self._quiet_since = now

    def moves(self, now: float) -> None:
        """Much came of a frame that is not whole."""
        self._quiet_since = self._stuck_since = now

    def received(self, frame: Heartbeat, sent_frames: int, now: float, large: int = 0) -> None:
        """`large`: the number of the last large frame that was sent. Raises MalformedFrame: the peer has dealt with
        more than it was sent."""
        if frame.processed > sent_frames or frame.echo > self._sequence:
            raise MalformedFrame("a heartbeat of what was never sent")
        self.heard(now)
        self._heard = max(self._heard, frame.sequence)
        if frame.processed > self._processed or frame.processed == sent_frames or frame.processed < large:
            self._processed = frame.processed
            self._stuck_since = now
        at = self._sent.get(frame.echo)
        if at is not None:
            self.round_trip = now - at
            self._sent = {sequence: when for sequence, when in self._sent.items() if sequence > frame.echo}

    def beat(self, processed: int, now: float, is_answer: bool = False) -> Heartbeat:
        """To be sent every `interval`; `processed`: frames of the peer that were dealt with. Answers have even numbers,
        so that nobody answers an answer."""
        self._sequence += 1
        if (self._sequence % 2 == 0) != is_answer:
            self._sequence += 1
        if len(self._sent) < 64:
            self._sent[self._sequence] = now
        return Heartbeat(self._sequence, self._heard, processed)

    def judge(self, now: float) -> str:
        """To be asked every `interval`, after all that had come was read."""
        away = now - self._looked - self.interval
        if away > self.interval:
            self._quiet_since += away
            self._stuck_since += away
        self._looked = now
        if now - self._quiet_since > self.patience:
            return SILENT
        return STUCK if now - self._stuck_since > self.patience else LIVE
