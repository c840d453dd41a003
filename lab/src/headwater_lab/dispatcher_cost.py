"""What a choice costs: nanoseconds per message of every dispatcher, for groups of 3, 30 and 1,000 members.

python -m headwater_lab.dispatcher_cost [--quick] [--json FILE] [dispatcher ...]

Driven is the group, as the broker does it: `choose_online` and `sent`; with QoS 1 also `acknowledged`, as soon as a
member has more than a few in flight. The clock stands still for a turn of 50 messages, as the broker's does. The loop
and the group cost something too: `sticky`, which looks at nothing, shows how much. The least of several rounds counts,
because whatever else the machine does only adds.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from headwater.message import Subscription
from headwater.routing.dispatcher import Member
from headwater.routing.shared import DISPATCHERS, Group, dispatcher
from headwater_lab import machine
from headwater_lab.results import write_json

COUNTS: Final = (3, 30, 1_000)
TURN: Final = 50  # messages at the same time
START: Final = 100.0  # on the dispatchers' clock
PERIOD: Final = 1e-6  # seconds per message: the broker is busy
IN_FLIGHT: Final = 4  # messages per member
QUICK: Final = ("sticky", "round_robin", "adaptive")


@dataclass(frozen=True)
class Cost:
    dispatcher: str
    members: int
    qos: int
    nanoseconds: float


def _group(name: str, members: int) -> Group:
    group = Group("g", "t", dispatcher(name))
    for key in range(members):
        group.join(key, Subscription("t", 1, share="g"))
    return group


def _drive(group: Group, turns: int, start: float, qos: int, flying: deque[Member], most: int) -> float:
    """CPU seconds for that many turns that begin at `start`."""
    choose, sent, acknowledged = group.choose_online, group.sent, group.acknowledged
    began = time.process_time()
    now = start
    for _ in range(turns):
        now += TURN * PERIOD
        for _ in range(TURN):
            member = choose("t", "p", now)
            assert member is not None
            sent(member, 100, qos, now)
            if qos:
                flying.append(member)
                if len(flying) > most:
                    acknowledged(flying.popleft(), now)
    return time.process_time() - began


def measure(name: str, members: int, qos: int, messages: int) -> Cost:
    """One round, after a tenth of one to get warm."""
    group = _group(name, members)
    flying: deque[Member] = deque()
    turns = max(10, messages // TURN)
    _drive(group, turns // 10, START, qos, flying, IN_FLIGHT * members)
    seconds = _drive(group, turns, START + turns * TURN * PERIOD, qos, flying, IN_FLIGHT * members)
    return Cost(name, members, qos, seconds / (turns * TURN) * 1e9)


def measure_all(names: Sequence[str], rounds: int, quick: bool) -> list[Cost]:
    """The least of all rounds. Each round has all dispatchers, so that whatever else the machine does meets all."""
    what = [(name, members, qos, _messages(members, quick)) for name in names for qos in (0, 1) for members in COUNTS]
    every = [[measure(*one) for one in what] for _ in range(rounds)]
    return [min(costs, key=lambda cost: cost.nanoseconds) for costs in zip(*every, strict=True)]


def _messages(members: int, quick: bool) -> int:
    """Enough to be measured, and not too many where a choice looks at every member."""
    return (2_000 if quick else 20_000) if members >= 1_000 else (10_000 if quick else 100_000)


def table(costs: Sequence[Cost]) -> str:
    """Markdown: one line per dispatcher."""
    found = {(cost.dispatcher, cost.members, cost.qos): cost.nanoseconds for cost in costs}
    columns = sorted({(cost.qos, cost.members) for cost in costs})
    lines = ["| ns per message | " + " | ".join(f"{count:,} members, QoS {qos}" for qos, count in columns) + " |"]
    lines.append("|---|" + "---:|" * len(columns))
    for name in dict.fromkeys(cost.dispatcher for cost in costs):
        cells = " | ".join(f"{found[name, count, qos]:,.0f}" for qos, count in columns)
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench dispatcher_cost", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="dispatcher", help="default: all")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}; fewer messages")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, with the machine")
    options = parser.parse_args(words)
    names = options.names or (QUICK if options.quick else sorted(DISPATCHERS))
    costs = measure_all(names, 3 if options.quick else 15, options.quick)
    print(table(costs))
    if options.json:
        content = {"machine": machine.describe(""), "costs": [asdict(cost) for cost in costs]}
        write_json(options.json, content)


if __name__ == "__main__":
    main()
