"""Can the simulation fail? The barriers of `headwater.peering`, each left out of a copy of the source.

A mutant is the source with one thing less; the simulation has to find something wrong with it (`judge`), within
`SEEDS` of them. `tests/lab/test_peering_mutants.py` runs them all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

SEEDS: Final = "2000"
"""At which one has to be found."""


class Edit(NamedTuple):
    """`old`, which stands in the file exactly once, becomes `new`. The file is named below src/headwater/peering."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    name: str
    what: str
    edits: tuple[Edit, ...]


MUTANTS = (
    Mutant(
        "suback-at-once",
        "SUBACK does not wait for acknowledgements of peers",
        (
            Edit(
                "exchange.py",
                'if not self._waiting.hold(token, self.own.stamp.number, self._behind_of(self.own, ""), now):',
                "if True:",
            ),
        ),
    ),
    Mutant(
        "any-acknowledgement-will-do",
        "an acknowledgement of an older change releases who waits for a newer one",
        (Edit("barrier.py", "if number is None or each.number <= number:", "if True:"),),
    ),
    Mutant(
        "relay-acknowledges-at-once",
        "a relay acknowledges interest before those behind it have",
        (
            Edit(
                "exchange.py",
                "barrier.hold((peer, stream.stamp), stream.stamp.number, others, now)",
                "self._acknowledge(peer, stream.origin, stream.stamp)",
            ),
        ),
    ),
    Mutant(
        "not-sure-means-no",
        "a link that came up is believed before it is synced",
        (Edit("exchange.py", "self.is_synced = False", "self.is_synced = True"),),
    ),
    Mutant(
        "unknown-member-wants-nothing",
        "a member that was not heard of since the start is taken for one that wants nothing",
        (
            Edit(
                "coordination.py",
                "if stream is None or stream.wants(topic):",
                "if stream is not None and stream.wants(topic):",
            ),
        ),
    ),
    Mutant(
        "acknowledged-before-commit",
        "a run is acknowledged to the peer before it is on disk",
        (
            Edit(
                "applied.py",
                "        if not self._is_begun or",
                "        self._committed = self.received\n        if not self._is_begun or",
            ),
        ),
    ),
    Mutant(
        "sent-before-commit",
        "a run is sent before it is on disk, so its position may be given away again",
        (
            Edit("spool.py", "self._sent >= self.durable:", "self._sent >= self.sealed:"),
            Edit("spool.py", "unsent[0].first <= self.durable and", "unsent[0].first <= self.sealed and"),
        ),
    ),
    Mutant(
        "forgotten-when-sent",
        "a spool drops what it has sent, without an acknowledgement",
        (
            Edit(
                "spool.py",
                "            unsent.popleft()\n        return found",
                "            unsent.popleft()\n        self.acknowledge(self._sent)\n        return found",
            ),
        ),
    ),
    Mutant(
        "position-is-not-kept",
        "after a reconnect, all that is not acknowledged is applied again",
        (
            Edit(
                "applied.py",
                "        return Resume(self.spool, self.received)",
                "        self.received = self._committed = greeting.first - 1\n"
                "        return Resume(self.spool, self.received)",
            ),
        ),
    ),
    Mutant(
        "no-window",
        "what comes by two ways counts twice",
        (Edit("windows.py", "return self.window(origin, boot).take(counter, count)", "return (1 << count) - 1"),),
    ),
    Mutant(
        "no-window-for-qos-0",
        "what comes by two ways counts twice",
        (Edit("windows.py", "        return count\n", "        return 0\n"),),
    ),
    Mutant(
        "spool-has-no-name",
        "positions of another life of a spool are taken for known ones",
        (Edit("spool.py", "if self._blocks else name", "if self._blocks else 1"),),
    ),
)


class StaleError(Exception):
    """A mutant no longer fits the source."""


def judge(mutant: Mutant, project: Path) -> str:
    """What the simulation found wrong with a mutant; "": nothing, it survived. Raises StaleError."""
    with tempfile.TemporaryDirectory(prefix="headwater-mutant-") as folder:
        source = Path(folder) / "src"
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(project / "src", source, ignore=ignored)
        for edit in mutant.edits:
            path = source / "headwater" / "peering" / edit.file
            text = path.read_text(encoding="utf-8")
            if text.count(edit.old) != 1:
                raise StaleError(f"{mutant.name}: {edit.file} has {edit.old!r} {text.count(edit.old)} times")
            path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
        paths = os.pathsep.join(map(str, (source, project / "lab" / "src")))
        command = [sys.executable, "-m", "headwater_lab.peering_simulation", "--seeds", SEEDS, "--stop"]
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise StaleError(f"{mutant.name}: {done.stderr}")
        return done.stdout if done.returncode else ""
