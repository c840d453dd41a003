"""Compare a broker with Mosquitto, both with TLS: `scripts/bench tls`, or `python -m headwater_lab.tls`.

The regimes of `scripts/bench broker` with TLS on every connection: CPU time of the brokers per delivered message, and
Mosquitto's over ours. Both have the same certificate (ECDSA P-256, made for the run) and their own defaults otherwise;
what TLS agrees on with each is told, and it is an error if it is not the same. The load generator speaks TLS itself
(OpenSSL), one record for each send of a packet. With --urgent all of it runs before what else the machine does, where
the system allows it. A full run writes docs/results/tls-DATE.json and the table in docs/performance.md. The exit status
tells whether messages were lost or reordered or a case could not run, never whether the broker was fast.
"""

from __future__ import annotations

import argparse
import dataclasses
import getpass
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.fleet.process import BrokerError
from headwater_lab import machine, report, results, scenarios
from headwater_lab.broker import content
from headwater_lab.compare import MOSQUITTO, OURS, Comparison, Row
from headwater_lab.contenders import Command, mosquitto_command, raise_file_limit, running
from headwater_lab.load import LoadError, LoadGenerator, build
from headwater_lab.options import comparison_options
from headwater_lab.reproduce.balance.priority import take_priority

NAME: Final = "tls"
GOAL: Final = 1.0
"""The least ratio that is meant to be reached everywhere."""
QUICK: Final = ("deep/W2", "lock/W4", "paced/W2")
REGIMES: Final = ("deep", "lock", "paced")

_SETTINGS: Final = """\
[[listeners]]
host = "127.0.0.1"
port = {port}
[listeners.tls]
certificate = "{certificate}"
key = "{key}"
"""


@dataclass(frozen=True)
class Certificate:
    """A certificate for loopback that is its own authority, and its key."""

    file: Path
    key: Path

    @classmethod
    def make(cls, folder: Path) -> Certificate:
        program = shutil.which("openssl")
        if program is None:
            raise LoadError("openssl is needed to make a certificate (Debian: apt install openssl)")
        made = cls(folder / "server.pem", folder / "server.key")
        words = [program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        words += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        words += ["-out", str(made.file), "-keyout", str(made.key)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LoadError(f"openssl cannot make a certificate:\n{done.stderr}")
        return made

    def mosquitto(self, port: int, folder: Path) -> list[str]:
        """Mosquitto with TLS; as root it would become a user that may not read the key."""
        words = mosquitto_command(port, folder)
        with Path(words[-1]).open("a") as config:
            config.write(f"certfile {self.file}\nkeyfile {self.key}\nuser {getpass.getuser()}\n")
        return words

    def headwater(self, template: str) -> Command:
        """A command line with `{config}`, the file of settings with the listener."""

        def command(port: int, folder: Path) -> list[str]:
            config = folder / f"headwater-{port}.toml"
            config.write_text(_SETTINGS.format(port=port, certificate=self.file, key=self.key))
            return shlex.split(template.format(port=port, config=shlex.quote(str(config))))

        return command


def cases(versions: scenarios.Versions) -> list[scenarios.Case]:
    """The regimes, `mid` as well, and what an idle connection takes."""
    every = scenarios.all_cases(versions)
    found = [dataclasses.replace(case, floor=GOAL) for case in every if case.scenario in (*REGIMES, "mid")]
    memory = next((case for case in every if case.key == "memory/connections"), None)
    if memory is not None:
        what = "1,000 idle connections, one subscription each"
        found.append(dataclasses.replace(memory, what=what, clients=1000, subscriptions=1000, bound=None))
    return found


def agreed(commands: dict[str, Command], load: LoadGenerator, folder: Path) -> str:
    """Version and cipher; LoadError if they are not the same with all brokers."""
    found = {}
    for name, command in commands.items():
        with running(command, folder) as broker:
            found[name] = load.cipher(broker.port)
    if len(set(found.values())) > 1:
        raise LoadError(f"TLS agrees on different things: {found}")
    return next(iter(found.values()))


def markdown(rows: Sequence[Row]) -> str:
    """The table, what is to be said against it, and memory."""
    head = ["traffic", "MQTT", "ratio", "µs ours", "µs Mosquitto", "messages/s ours", "Mosquitto"]
    head += ["p99 µs ours", "Mosquitto"]
    traffic = [row for row in rows if row.case["measure"] == "traffic"]
    parts = [report.table(head, [_cells(row) for row in traffic])]
    parts += [
        f"An idle connection takes {row.median(OURS, 'cost'):.1f} KiB (Mosquitto: {row.median(MOSQUITTO, 'cost'):.1f})."
        for row in rows
        if row.case["measure"] == "connection memory" and not row.error
    ]
    return "\n\n".join([*parts, _losses(traffic)])


def _cells(row: Row) -> list[str]:
    cells = [row.case["what"], "5.0" if row.case["mqtt"] == 5 else "3.1.1"]
    if row.error:
        return [*cells, "failed", *[""] * 6]
    brokers = (OURS, MOSQUITTO)
    cells += [report.ratio(row), *(report.number(row.median(name, "cost")) for name in brokers)]
    cells += [f"{row.median(name, 'rate'):,.0f}" for name in brokers]
    return cells + [f"{row.median(name, 'p99'):.0f}" if row.median(name, "p99") else "" for name in brokers]


def _losses(rows: Sequence[Row]) -> str:
    lines = [f"- {row.case['what']} ({row.key}): {'; '.join(said)}." for row in rows if (said := report.remarks(row))]
    return "Losses:\n\n" + ("\n".join(lines) or "- None: every ratio at least 1, no message lost or out of order.")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = comparison_options("tls", __doc__, placeholder="config", quick="a slice, one round")
    parser.add_argument("--urgent", action="store_true", help="run before what else the machine does")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and return the exit status."""
    options = parse(arguments)
    names = options.only or (QUICK if options.quick else (*REGIMES, "memory"))
    try:
        chosen = scenarios.select(cases("4" if options.quick else options.mqtt), names)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 2
    facts = machine.describe(options.command.replace(shlex.quote(sys.executable), "python"))
    facts["priority"] = take_priority() if options.urgent else "ordinary"
    raise_file_limit()
    rows: list[Row] = []
    try:
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
            comparison = _comparison(options, Path(folder))
            commands = {OURS: comparison.ours, MOSQUITTO: comparison.mosquitto}
            facts["TLS"] = agreed(commands, comparison.load, comparison.folder)
            facts["rounds"] = f"{comparison.rounds} of {comparison.seconds:g} s"
            facts["load at the beginning"] = f"{os.getloadavg()[0]:.1f} processes"
            print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
            for row in comparison.run(chosen):
                rows.append(row)
                print(report.progress_line(row), flush=True)
            facts["load at the end"] = f"{os.getloadavg()[0]:.1f} processes"
    except (LoadError, BrokerError) as problem:
        print(problem, file=sys.stderr)
        return 2
    if options.json:
        results.write_json(options.json, content(rows, facts))
    if not (options.no_docs or options.quick or options.only or options.itself or options.mqtt != "both"):
        write_docs(options.docs, rows, facts)
    return 1 if any(row.failed for row in rows) else 0


def write_docs(docs: Path, rows: Sequence[Row], facts: dict[str, str]) -> None:
    """The result file, and the generated part of performance.md; text outside its markers stays."""
    results.keep(docs, NAME, content(rows, facts))
    report.update(docs / "performance.md", f"{report.facts(facts)}\n\n{markdown(rows)}", NAME)


def _comparison(options: argparse.Namespace, folder: Path) -> Comparison:
    certificate = Certificate.make(folder)
    seconds = options.seconds or (0.5 if options.quick else 2.0)
    return Comparison(
        ours=certificate.mosquitto if options.itself else certificate.headwater(options.command),
        load=build(folder, tls=certificate.file),
        folder=folder,
        rounds=options.rounds or (1 if options.quick else 5),
        seconds=seconds,
        warmup=min(0.5, seconds / 2),
        mosquitto=certificate.mosquitto,
    )


if __name__ == "__main__":
    sys.exit(main())
