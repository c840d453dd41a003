"""The own client's subscriptions at the home broker, brought step by step to what they should be.

    wanted --subscribe what is missing--> SUBACK --unsubscribe what is too much--> UNSUBACK --> settled, or again

One step is under way at a time. What is to be unsubscribed goes after what takes its place, so nothing is missed in
between. `settled` is told of each state of other nodes' interest that the subscriptions have reached: those who wait
for it may be told (peering/exchange.py, `caught`).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headwater.peering.frames.frame import Stamp

log = logging.getLogger("headwater.proxy")

AT_ONCE: Final = 200
"""Filters in one packet."""
FILE: Final = "home-subscriptions.json"

Send = Callable[[list[str]], None]


class Catches:
    def __init__(self, folder: Path | None, settled: Callable[[dict[str, Stamp]], None]) -> None:
        self._file = None if folder is None else folder / FILE
        self._settled = settled
        self.wanted: set[str] = set()
        self.at_broker: set[str] = self._read()
        self.refused: dict[str, int] = {}
        """Filters that the broker has refused, and why."""
        self._sure: set[str] = set()
        """Those of `at_broker` that were acknowledged in this session of the home broker."""
        self._asked: list[str] = []
        self._is_subscribing = False
        self._token: dict[str, Stamp] | None = None
        self._next_token: dict[str, Stamp] | None = None
        self.subscribe: Send | None = None
        """None: the home broker is away."""
        self.unsubscribe: Send | None = None

    @property
    def is_busy(self) -> bool:
        return bool(self._asked)

    @property
    def is_settled(self) -> bool:
        """What is wanted is subscribed to, as far as the broker lets it be; or the broker is away."""
        return self.subscribe is None or not self.wanted - self._sure - self.refused.keys()

    def want(self, filters: set[str], token: dict[str, Stamp]) -> None:
        """Catch these from now on; `token` is what is reached with it."""
        self.wanted = filters
        self._next_token = token
        self._go_on()

    def up(self, subscribe: Send, unsubscribe: Send, is_present: bool) -> None:
        """The home broker is there. It is subscribed to again in any case: brokers differ in what they keep."""
        self.subscribe, self.unsubscribe = subscribe, unsubscribe
        self._sure = set()
        self.refused = {}
        if not is_present:
            self.at_broker = set()
        self._asked = []
        self._next_token = self._next_token or self._token or {}
        self._go_on()

    def down(self) -> None:
        """Nothing is published there that could be missed: nobody has to wait."""
        self.subscribe = self.unsubscribe = None
        self._asked = []
        self._tell()

    def acknowledged(self, reasons: list[int]) -> None:
        """SUBACK, or UNSUBACK (of 3.1.1 without reasons)."""
        asked, self._asked = self._asked, []
        if self._is_subscribing:
            for filter, reason in zip(asked, reasons, strict=False):
                if reason >= 0x80:
                    self.refused[filter] = reason
                    log.warning("the home broker refuses the subscription to %.200r (0x%02X)", filter, reason)
            granted = [each for each in asked if each not in self.refused]
            self._sure.update(granted)
            self.at_broker.update(granted)
        else:
            self.at_broker.difference_update(asked)
            self._sure.difference_update(asked)
            self._write()
        self._go_on()

    def _go_on(self) -> None:
        if self._asked or self.subscribe is None or self.unsubscribe is None:
            if self.subscribe is None:
                self._tell()
            return
        if self._token is None:
            self._token, self._next_token = self._next_token, None
        missing = sorted(self.wanted - self._sure - self.refused.keys())[:AT_ONCE]
        if missing:
            self._is_subscribing = True
            self._asked = missing
            self.at_broker.update(missing)  # before the broker knows: what is there must never be forgotten
            self._write()
            self.subscribe(missing)
            return
        self._tell()
        too_much = sorted(self.at_broker - self.wanted)[:AT_ONCE]
        if too_much:
            self._is_subscribing = False
            self._asked = too_much
            self.unsubscribe(too_much)

    def _tell(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            self._settled(token)
        if self._next_token is not None and (
            self.subscribe is None or not self.wanted - self._sure - self.refused.keys()
        ):
            token, self._next_token = self._next_token, None
            self._settled(token)

    def _read(self) -> set[str]:
        if self._file is None:
            return set()
        try:
            return set(json.loads(self._file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return set()
        except (OSError, ValueError, TypeError) as error:
            log.warning(
                "cannot read %s: %s; subscriptions of an earlier start stay at the home broker", self._file, error
            )
            return set()

    def _write(self) -> None:
        if self._file is None:
            return
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(sorted(self.at_broker)), encoding="utf-8")
        os.replace(new, self._file)
