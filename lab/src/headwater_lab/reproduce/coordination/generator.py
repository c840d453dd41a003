"""The load and the probe, two processes of the C program paced.c, run against a system: a trial."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headwater_lab.load import LoadError
from headwater_lab.reproduce.coordination.placement import pairs, place, plan_text
from headwater_lab.reproduce.coordination.plan import Course, Setup
from headwater_lab.reproduce.coordination.systems import System

SOURCE: Final = Path(__file__).parents[2] / "paced.c"
PROBE_LIMIT: Final = 35.0
"""Seconds until the probe's ways have to be open; it gives up a little earlier."""
LATE_PROBES: Final = 3.0
"""Seconds that probes may come after the load."""
LOOK: Final = 0.01


@dataclass(frozen=True)
class Sample:
    """Everything since the start; times in seconds. What it means is said in paced.c."""

    at: float
    attempted: int
    completed: int
    received: int
    overdue: int
    held: int
    sender: float
    sender_waited: float
    receiver: float
    receiver_waited: float
    retransmitted: int
    out_of_order: int
    segments: int
    window: float
    unsent: int
    unread: int
    cpu: Mapping[str, float]


@dataclass(frozen=True)
class Probe:
    """Three points of time of a message of the probe, seconds; None: it did not come to that."""

    pair: int
    number: int
    sent: float
    completed: float | None
    received: float | None


@dataclass(frozen=True)
class Counted:
    """At the end, when nothing more came. `expected` are all copies of what was sent; `received` has no message twice,
    and none that came after a later one of its publisher: those are `repeated`."""

    sent: int
    expected: int
    received: int
    repeated: int
    misrouted: int
    corrupt: int


@dataclass(frozen=True)
class Trial:
    """`purpose`: fixed, searched, limit or slow."""

    setup: str
    placement: str
    purpose: str
    course: Course
    opened_s: float
    samples: Sequence[Sample]
    probes: Sequence[Probe]
    counted: Counted

    @property
    def is_far(self) -> bool:
        """Whether there are probes from the first broker to the last."""
        return any(each.pair == 1 for each in self.probes)


class Generator:
    """The built program, and a folder for its plans."""

    def __init__(self, folder: Path) -> None:
        """LoadError: it cannot be built."""
        self._folder = folder
        self._program = folder / "paced"
        if shutil.which("gcc") is None:
            raise LoadError("gcc is needed to build the load generator (Debian: apt install gcc libc6-dev)")
        words = ["gcc", "-O2", "-Wall", "-Wextra", "-Wno-unused-function", "-o", str(self._program), str(SOURCE)]
        done = subprocess.run([*words, "-pthread"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise LoadError(f"gcc cannot build the load generator:\n{done.stderr}")

    def run(self, setup: Setup, placement: str, purpose: str, system: System, course: Course) -> Trial:
        """LoadError: it could not be measured. BrokerError: a broker has died."""
        plan = self._folder / "plan"
        plan.write_text(plan_text(place(placement, len(system.ports)), system.ports))
        try:
            with self._probing(system.ports, course.probe_every) as probe:
                lines = self._load(plan, system, course)
                samples = [_sample(each) for each in lines if "at" in each]
                probes = probe.until(samples[0].at, samples[-1].at)
        except LoadError:
            system.check_alive()  # if one has died, that is what should be reported
            raise
        counted = Counted(**{name: lines[-1][name] for name in Counted.__dataclass_fields__})
        return Trial(setup.name, placement, purpose, course, lines[0]["opened_s"], samples, probes, counted)

    def _load(self, plan: Path, system: System, course: Course) -> list[dict[str, Any]]:
        words = [
            str(self._program),
            "load",
            "--plan",
            str(plan),
            "--interval-us",
            str(round(course.interval_ms * 1000)),
        ]
        words += ["--seconds", str(course.seconds), "--warmup", str(course.warmup)]
        words += ["--drain-limit", str(course.drain_limit), "--slow-receive-us", str(course.slow_us)]
        for name, process in system.processes.items():
            words += ["--watch", f"{name}={','.join(map(str, process.pids()))}"]
        limit = course.total + course.drain_limit + 60.0
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            raise LoadError(f"the load generator did not finish within {limit:.0f} s") from None
        if done.returncode:
            raise LoadError(done.stderr.strip() or f"the load generator ended with status {done.returncode}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    @contextlib.contextmanager
    def _probing(self, ports: Sequence[int], every: float) -> Iterator[_Probing]:
        words = [str(self._program), "probe", "--interval-us", str(round(every * 1e6))]
        for from_port, to_port in pairs(ports):
            words += ["--pair", f"{from_port}:{to_port}"]
        said = self._folder / "probes"
        with said.open("wb") as sink:
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=sink, stderr=subprocess.PIPE)
        try:
            probing = _Probing(process, said)
            probing.wait_until_ready()
            yield probing
        finally:
            process.kill()
            process.communicate()


class _Probing:
    """A probe's process, and the file of what it says."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path) -> None:
        self._process = process
        self._said = said

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + PROBE_LIMIT
        while b"ready" not in self._said.read_bytes():
            self._check()
            if time.monotonic() > deadline:
                raise LoadError("the probe's messages do not arrive")
            time.sleep(LOOK)

    def until(self, begin: float, end: float) -> list[Probe]:
        """Those sent meanwhile, when all have come, or have had their time."""
        deadline = time.monotonic() + LATE_PROBES
        while True:
            self._check()
            found = [each for each in read_probes(self._said.read_text()) if begin <= each.sent <= end]
            if time.monotonic() > deadline or all(each.received is not None for each in found):
                return found
            time.sleep(LOOK)

    def _check(self) -> None:
        if self._process.poll() is not None:
            assert self._process.stderr is not None
            raise LoadError(self._process.stderr.read().decode().strip() or "the probe ended")


def read_probes(text: str) -> list[Probe]:
    """Lines of JSON, each with one point of time of a message; the last may be incomplete."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    for line in text.splitlines(keepends=True):
        if line.endswith("\n") and "pair" in line:
            each = json.loads(line)
            what = found.setdefault((each.pop("pair"), each.pop("number")), {})
            what.update({name: ns * 1e-9 for name, ns in each.items()})
    return [
        Probe(pair, number, times["sent"], times.get("completed"), times.get("received"))
        for (pair, number), times in sorted(found.items())
        if "sent" in times
    ]


def _sample(line: dict[str, Any]) -> Sample:
    return Sample(**{**line, "at": line["at"] * 1e-9})
