"""Brokers of three makes behind proxies, killed and cut under load: `scripts/bench proxy-chaos`.

An episode is a fabric on loopback (a proxy and its broker for each make, a node of ours among them) and a run of
check-broker at all doors: publishers and subscribers of QoS 0, 1 and 2, sessions that last, retained messages, wills.
Meanwhile proxies and brokers are killed with `kill -9` and started again, and proxies stopped, which is a link that is
cut. Then judges say what was acknowledged and lost, what of QoS 2 came twice, what is stuck. Last, one message of QoS 0
and one of 1 are published at each door: more copies of them anywhere are a loop.

What a make does by itself is told apart: a broker is killed only if it keeps what it acknowledged over that
(docs/brokers.md), else terminated; and what is judged beyond that, the order of messages, sessions, wills, retained
messages, is counted as seen, with no verdict, as makes differ there without any proxy (docs/check-broker.md). RabbitMQ
answers QoS 2 with PUBACK: that is counted, too.

The folder of an episode in which something was wrong has, beside the data and logs of all, `history.jsonl`: what the
clients did and saw.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any, Final

from headwater.wire.packets import Publish, SubscribeRequest
from headwater_lab.check_broker.contestants import Node, running
from headwater_lab.check_broker.faults import FaultCommands
from headwater_lab.check_broker.history import Fault, Publication
from headwater_lab.check_broker.judges import Finding
from headwater_lab.check_broker.judges.court import judge
from headwater_lab.check_broker.outcome import Progress
from headwater_lab.check_broker.promises import Promise, parse_promises
from headwater_lab.check_broker.run import Settings, run
from headwater_lab.kill_campaign import EpisodeOutcome, KillCampaign, Part, Totals, parser
from headwater_lab.makes.fabric import Member, connected, nodes_of, wait_until_whole
from headwater_lab.makes.hand import Closed

MAKES: Final = ("mosquitto", "rabbitmq", "headwater")
PART: Final = "fabric"
SECONDS_PER_FAULT: Final = 8.0
KEEPS_OVER_KILL: Final = frozenset({"rabbitmq", "nats", "headwater"})
"""The makes that keep sessions and what was acknowledged over `kill -9`."""
KINDS: Final = {Promise.ACKNOWLEDGED: "acknowledged_lost", Promise.ONCE: "qos2_twice", Promise.INTEGRITY: "damaged"}
FIGURES: Final = ("acknowledged_lost", "loops", "qos2_twice", "stuck")
_PUBACK_FOR_QOS_2: Final = " got Puback("
QUIET: Final = 1.0
"""Seconds in which a message that goes round comes again: a round takes milliseconds."""


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser(
        "bench proxy-chaos",
        (__doc__ or "").partition("\n")[0],
        kills=60,
        of="faults",
        per_episode=6,
        on="fabric",
    )
    made.add_argument("--makes", nargs="+", default=list(MAKES), metavar="MAKE", help="brokers of the fabric")
    made.add_argument("--settle", type=float, default=15.0, help="seconds that what is owed may take at the end")
    made.add_argument("--kill-any", action="store_true", help="kill brokers, too, that lose what they acknowledged")
    options = made.parse_args(arguments)
    kept = frozenset(options.makes) if options.kill_any else KEEPS_OVER_KILL
    command = f"headwater proxy before {', '.join(options.makes)}"
    campaign = KillCampaign("proxy-chaos", command, options, whole=60)

    def episode(seed: int, folder: Path, faults: int) -> EpisodeOutcome:
        return disturbed(folder, seed, options.makes, faults, options.settle, kept)

    campaign.kill(Part(PART, episode, _line, _facts, (*KINDS.values(), "loops", "stuck")))
    return campaign.end()


def disturbed(
    folder: Path, seed: int, names: Sequence[str], faults: int, settle: float, killed: Set[str]
) -> EpisodeOutcome:
    """One fabric, and so many faults."""
    outcome = EpisodeOutcome(seed)
    nodes, members = nodes_of(folder, names)
    with running(lambda _: nodes, folder):
        wait_until_whole(members)
        _load(outcome, folder, members, seed, faults, settle, killed)
        began = time.monotonic()
        try:
            wait_until_whole(members)
            outcome.waited("whole again", time.monotonic() - began)
            _look_for_loops(outcome, members)
        except Closed as problem:
            outcome.wrong.append(f"stuck: {problem}")
    return outcome


def _load(
    outcome: EpisodeOutcome,
    folder: Path,
    members: Sequence[Member],
    seed: int,
    faults: int,
    settle: float,
    killed: Set[str],
) -> None:
    settings = Settings(
        tuple(member.door.target for member in members),
        seconds=faults * SECONDS_PER_FAULT,
        seed=seed,
        rate=10.0,
        roams=False,
        faults=[fault for member in members for fault in faults_of(member, killed)],
        fault_every=SECONDS_PER_FAULT - 3.0,
        fault_lasts=3.0,
        settle=settle,
        wait=60.0,
    )
    progress = Progress()
    recorded = asyncio.run(run(settings, progress.tell))
    progress.end()
    history = recorded.history
    history.save(folder / "history.jsonl")
    outcome.kills.update(each.name for each in history.of(Fault))
    outcome.counts["acknowledged"] += sum(
        1 for each in history.of(Publication) if each.qos and each.outcome.name == "OK"
    )
    promised = parse_promises("per-node", len(members))[1]
    for verdict in judge(history):
        for finding in verdict.findings:
            if verdict.promise is Promise.INTEGRITY and _PUBACK_FOR_QOS_2 in finding.text:
                outcome.counts["seen: QoS 2 answered with PUBACK"] += 1
            elif verdict.promise is Promise.ONCE and not _keep_qos_2(finding, members):
                outcome.counts["seen: QoS 2 twice, from or to a make without it"] += 1
            elif verdict.promise in KINDS and verdict.promise in promised:
                outcome.wrong.append(f"{KINDS[verdict.promise]}: {finding.text}")
            else:
                outcome.counts[f"seen: {verdict.promise}"] += 1


def _keep_qos_2(finding: Finding, members: Sequence[Member]) -> bool:
    """Whether the makes do that publisher and subscriber are at: RabbitMQ delivers a repeated PUBLISH once more."""
    keeping = {str(member.door.target) for member in members if "qos2" in member.make.features}
    return all(entry.target in keeping for entry in finding.entries)


def faults_of(member: Member, killed: Set[str]) -> list[FaultCommands]:
    """Of its broker, which is terminated if its make is not among the `killed`, and of its proxy if it has one."""
    way = "kill" if member.make.name in killed else "term"
    found = _named(member.broker, (way,), member.name)
    if member.door is not member.broker:
        found += _named(member.door, ("kill", "stop"), f"{member.name}-proxy")
    return found


def _named(node: Node, kinds: Sequence[str], name: str) -> list[FaultCommands]:
    return [FaultCommands(f"{kind}-{name}", each.start, each.heal) for kind in kinds for each in node.faults((kind,))]


def _look_for_loops(outcome: EpisodeOutcome, members: Sequence[Member]) -> None:
    with contextlib.ExitStack() as stack:
        hands = [stack.enter_context(connected(member, f"loops-{member.name}")) for member in members]
        for hand in hands:
            hand.subscribe(SubscribeRequest("fabric/loops/#", 1))
        for member, hand in zip(members, hands, strict=True):
            for qos in (0, 1):
                hand.publish(Publish(f"fabric/loops/{member.name}", b"the same", qos))
        until = time.monotonic() + QUIET
        while time.monotonic() < until:
            for hand in hands:
                hand.barrier()
        for member, hand in zip(members, hands, strict=True):
            for topic, count in Counter(each.topic for each in hand.messages).items():
                if count > 2:
                    outcome.wrong.append(f"loops: {topic} came {count} times at {member.name}, and 2 were published")


def _line(totals: Totals) -> str:
    return f"{totals.counts['acknowledged']} acknowledged"


def _facts(totals: Totals) -> dict[str, Any]:
    return {
        "faults": dict(totals.kills),
        "messages acknowledged": totals.counts["acknowledged"],
        "seen, and not judged": {
            name.removeprefix("seen: "): count for name, count in totals.counts.items() if name.startswith("seen: ")
        },
        "longest in s": {what: round(seconds, 1) for what, seconds in totals.longest.items()},
        "figures": {name: totals.wrong[name] for name in FIGURES},
    }


if __name__ == "__main__":
    sys.exit(main())
