"""What the delivery store takes and gives: `scripts/bench store`, or `python -m headwater_lab.store`.

Ten thousand topics, JSON payloads of about 107 bytes from which time and value are taken, everything indexed, synced
before it is acknowledged. A node in a process of its own on one core, publishers and readers on the other:

- intake: a hundred publishers, QoS 0 (until every message can be read), QoS 1 with 20 messages under way for each
  publisher and with one (until every message is acknowledged);
- read: all of a store over HTTP as Arrow, by `headwater.store.reader`;
- query: one topic and an hour, by HTTP on one connection, of a store with 10,000,000 messages (--quick: 1,000,000, of
  which an hour is all).

The same messages go into our store, SQLite and a plain file in process, on one core, in groups as large as the node's
commits were (store_contenders.py says what each of them does). All that is stored is read back and compared with what
was sent: the exit status is 1 if anything differs, and does not depend on speed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from headwater.fleet.process import BrokerError
from headwater.node.persistence.schema import open_folder
from headwater_lab import machine, store_inside, store_outside
from headwater_lab.load import LoadError
from headwater_lab.options import figure_options
from headwater_lab.store_contenders import CONTENDERS, Contender, size_of
from headwater_lab.store_figures import Figures
from headwater_lab.store_inside import Answer, quantile, questions
from headwater_lab.store_messages import Readings, readings
from headwater_lab.store_node import cores, on_core, running_node
from headwater_lab.store_proof import Proof

SEED: Final = 20
WINDOW: Final = 20
RATE, CPU, MILLISECONDS = "1/s", "µs", "ms"


class Sizes(NamedTuple):
    """How many messages and questions. A file is asked less often: each question reads all of it."""

    stored: int
    qos0: int
    qos1: int
    window1: int
    questions: int
    questions_of_file: int


FULL: Final = Sizes(10_000_000, 2_000_000, 1_000_000, 200_000, 500, 10)
QUICK: Final = Sizes(1_000_000, 500_000, 200_000, 50_000, 500, 5)

INTAKES: Final = (("intake_qos0", 0, 0), ("intake_qos1", 1, WINDOW), ("intake_qos1_window1", 1, 1))


class Campaign:
    """One run. Data goes to `folder`; `wrong` is what did not come back as it was sent."""

    def __init__(self, folder: Path, sizes: Sizes, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self.sizes = sizes
        self.tell = tell
        self.cores = cores()
        self.figures = Figures()
        self.wrong: list[str] = []
        self.groups: dict[str, int] = {}
        """Messages of a commit, by intake."""
        self._answers: list[Answer] = []

    def run(self) -> None:
        for name, qos, window in INTAKES:
            self._intake(name, qos, window)
        for name, make in CONTENDERS.items():
            self._inside(name, make)
        self._outside()

    def _rounds(self, messages: int) -> Iterable[Readings]:
        return readings(messages, SEED)

    # ---- a node takes messages -----------------------------------------------------------------------------------

    def _intake(self, name: str, qos: int, window: int) -> None:
        messages = {"intake_qos0": self.sizes.qos0, "intake_qos1": self.sizes.qos1}.get(name, self.sizes.window1)
        found = store_outside.intake(self.folder / name, self.cores, partial(self._rounds, messages), qos, window)
        add = self.figures.add
        add(f"{name}/msgs_per_s", found.cost.rate, RATE)
        add(f"{name}/cpu_us", found.cost.microseconds, CPU)
        add(f"{name}/load_cpu_us", found.load / messages * 1e6, CPU)
        add(f"{name}/messages", messages, "")
        add(f"{name}/messages_per_commit", found.group, "")
        add(f"{name}/resident_mb", found.resident / 2**20, "MiB")
        self.groups[name] = found.group
        self._check(name, found.differences)
        self.tell(
            f"{name}: {found.cost.rate:,.0f}/s, {found.cost.microseconds:.2f} µs of the node's CPU for each, "
            f"{found.group:,} in a commit"
        )

    # ---- contenders in process -----------------------------------------------------------------------------------

    def _inside(self, name: str, make: Callable[[Path], Contender]) -> None:
        prefix = "inside/" if name == "store" else f"{name}/"
        with on_core(self.cores[0]):
            self._small_groups(prefix, name, make)
            data = self.folder / name / "data"
            data.mkdir(parents=True)
            open_folder(data).close()  # so that a node takes it for its own
            contender = make(data / "messages")
            try:
                proof = self._fill(prefix, contender)
                self._read(prefix, contender, proof)
                self._ask(prefix, contender, self.sizes.questions_of_file if name == "file" else self.sizes.questions)
            finally:
                contender.close()
        self._size(prefix, data, proof)

    def _small_groups(self, prefix: str, name: str, make: Callable[[Path], Contender]) -> None:
        contender = make(self.folder / f"{name}-qos1")
        try:
            rounds = self._rounds(self.sizes.qos1)
            cost = store_inside.fill(contender, rounds, self.groups["intake_qos1"], None, _silent)
        finally:
            contender.close()
        self.figures.add(f"{prefix}intake_qos1/msgs_per_s", cost.rate, RATE)
        self.figures.add(f"{prefix}intake_qos1/cpu_us", cost.microseconds, CPU)
        self.tell(f"{prefix}intake_qos1: {cost.rate:,.0f}/s")

    def _fill(self, prefix: str, contender: Contender) -> Proof:
        proof = Proof()
        rounds = self._rounds(self.sizes.stored)
        told = _now_and_then(lambda text: self.tell(f"{prefix}intake_qos0: {text}"))
        cost = store_inside.fill(contender, rounds, self.groups["intake_qos0"], proof, told)
        self.figures.add(f"{prefix}intake_qos0/msgs_per_s", cost.rate, RATE)
        self.figures.add(f"{prefix}intake_qos0/cpu_us", cost.microseconds, CPU)
        self.tell(f"{prefix}intake_qos0: {cost.rate:,.0f}/s, {cost.microseconds:.2f} µs of CPU for each")
        return proof

    def _read(self, prefix: str, contender: Contender, proof: Proof) -> None:
        returned = proof.returned()
        cost = store_inside.read(contender, returned)
        self.figures.add(f"{prefix}read_arrow/rows_per_s", cost.rate, RATE)
        self.figures.add(f"{prefix}read_arrow/cpu_us", cost.microseconds, CPU)
        self._check(f"{prefix}read_arrow", returned.differences())
        self.tell(f"{prefix}read_arrow: {cost.rate:,.0f} rows/s")

    def _ask(self, prefix: str, contender: Contender, count: int) -> None:
        taken, answers = store_inside.ask(contender, questions(count, self.sizes.stored, SEED))
        self._asked(prefix, taken, answers)

    def _size(self, prefix: str, data: Path, proof: Proof) -> None:
        size = size_of(data)
        self.figures.add(f"{prefix}disk/bytes_per_message", size / proof.messages, "bytes")
        self.figures.add(f"{prefix}disk/bytes_per_payload_byte", size / proof.payload_bytes, "")
        if prefix == "inside/":
            self._proof = proof
            self.figures.add("disk/bytes_per_message", size / proof.messages, "bytes")
            self.figures.add("disk/bytes_per_payload_byte", size / proof.payload_bytes, "")
            self.figures.add("payload/bytes", proof.payload_bytes / proof.messages, "bytes")
        self.tell(f"{prefix}disk: {size / proof.messages:.1f} bytes per message")

    # ---- a node gives messages -----------------------------------------------------------------------------------

    def _outside(self) -> None:
        with running_node(self.folder / "store", self.cores[0]) as node, on_core(self.cores[1]):
            returned = self._proof.returned()
            cost, own = store_outside.read(node, returned)
            self.figures.add("read_arrow/rows_per_s", cost.rate, RATE)
            self.figures.add("read_arrow/cpu_us", cost.microseconds, CPU)
            self.figures.add("read_arrow/reader_cpu_us", own / cost.rows * 1e6, CPU)
            self.figures.add("read_arrow/rows", cost.rows, "")
            self._check("read_arrow", returned.differences())
            self.tell(f"read_arrow: {cost.rate:,.0f} rows/s, {cost.microseconds:.2f} µs of the node's CPU for each")
            self._asked("", *store_outside.ask(node, questions(self.sizes.questions, self.sizes.stored, SEED)))
            self.figures.add("query/messages", self.sizes.stored, "")
            self.figures.add("query/resident_mb", node.resident_bytes() / 2**20, "MiB")

    def _asked(self, prefix: str, taken: list[float], answers: list[Answer]) -> None:
        self.figures.add(f"{prefix}query/p50_ms", quantile(taken, 0.5), MILLISECONDS)
        self.figures.add(f"{prefix}query/p99_ms", quantile(taken, 0.99), MILLISECONDS)
        self.figures.add(f"{prefix}query/questions", len(taken), "")
        self.figures.add(f"{prefix}query/rows", sum(map(len, answers)) / len(answers), "")
        self._answers = self._answers or answers
        if answers != self._answers[: len(answers)] or not answers[0]:
            self._check(f"{prefix}query", ["answers differ from those of the store in process"])
        self.tell(f"{prefix}query: p50 {quantile(taken, 0.5):.2f} ms, p99 {quantile(taken, 0.99):.2f} ms")

    def _check(self, name: str, differences: list[str]) -> None:
        self.wrong += [f"{name}: {text}" for text in differences]


def _silent(text: str) -> None:
    pass


def _now_and_then(tell: Callable[[str], None], pause: float = 10.0) -> Callable[[str], None]:
    """Passes on what comes, but not too often."""
    last = time.monotonic()

    def told(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= pause:
            last = time.monotonic()
            tell(text)

    return told


def surroundings(folder: Path, sizes: Sizes) -> dict[str, str]:
    """Machine, versions, and what a sync goes to."""
    found = machine.describe("headwater node --data-dir DIR")
    del found["mosquitto"]
    words = ["stat", "--file-system", "--format=%T", str(folder)]
    found["file system"] = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    found["cores"] += f", node on {cores()[0]}, load on {cores()[1]}"
    found["messages"] = f"{sizes.stored:,} stored, {sizes.qos0:,} by QoS 0, {sizes.qos1:,} by QoS 1"
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = figure_options("store", __doc__, quick="fewer messages, in under two minutes")
    parser.add_argument("--folder", type=Path, help="where the data goes (default: the system's folder for such)")
    chosen = parser.parse_args(arguments)
    sizes = QUICK if chosen.quick else FULL
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="headwater-bench-", dir=chosen.folder) as name:
        about = surroundings(Path(name), sizes)
        if about["file system"] in ("tmpfs", "ramfs"):
            tell(f"{name} is in memory, where a sync costs nothing: choose a disk by --folder")
        campaign = Campaign(Path(name), sizes, tell)
        try:
            campaign.run()
        except (BrokerError, LoadError) as error:
            print(f"scripts/bench store: {error}", file=sys.stderr)
            return 1
    campaign.figures.publish(chosen, "store", "performance.md", about)
    for each in campaign.wrong:
        print(f"NOT WHAT WAS SENT: {each}", file=sys.stderr)
    return 1 if campaign.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
