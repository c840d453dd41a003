"""Damaged scripts against a broker in memory, guided by what they reach: scripts/bench fuzz --coverage [--minutes N]

Theory. A script that takes the broker over a step from one line to another that no script has taken before is worth
keeping: what is damaged next is one of those kept. So the fuzzer works its way, one condition at a time, into places
that no random packet would find. Steps between lines are seen by `sys.settrace`, in the package's plain sources.

Scripts that were worth it are kept in a file, one per line; a run begins with them, and the tests play them again.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Final

import headwater
from headwater.build_info import module_states
from headwater_lab.fuzz_script import CLIENTS, LONGEST, Script, Step, play
from headwater_lab.hostile_streams import conversation, damage, pieces

PACKAGE: Final = os.path.dirname(headwater.__file__)
LEFT_OUT: Final = os.path.join(PACKAGE, "bench")
CORPUS: Final = Path("tests/fuzz/corpus.txt")
MOST_KEPT: Final = 300
MOST_BYTES: Final = 80_000
"""Of the file."""

Edge = tuple[int, int]
Tracer = Callable[[FrameType, str, Any], Any]


class Coverage:
    """The steps between lines of our own code while something runs."""

    def __init__(self) -> None:
        self.edges: set[Edge] = set()
        self._last = 0
        self._files: dict[str, int] = {}

    def run(self, data: bytes) -> set[Edge]:
        self.edges = set()
        self._last = 0
        sys.settrace(self._entered)
        try:
            play(data)
        finally:
            sys.settrace(None)
        return self.edges

    def _entered(self, frame: FrameType, event: str, argument: object) -> Tracer | None:
        name = frame.f_code.co_filename
        number = self._files.get(name)
        if number is None:
            ours = name.startswith(PACKAGE) and not name.startswith(LEFT_OUT)
            number = self._files[name] = (len(self._files) + 1) << 16 if ours else 0
        return self._line if number else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Tracer:
        if event == "line":
            here = self._files[frame.f_code.co_filename] | frame.f_lineno
            self.edges.add((self._last, here))
            self._last = here
        return self._line


def first_scripts(random: Random, count: int = 60) -> list[bytes]:
    """Valid conversations, and damaged ones."""
    scripts = []
    for _ in range(count):
        steps: list[Step] = []
        for client in range(random.randrange(1, CLIENTS)):
            steps += [Step(client, 0, 0, part) for packet in conversation(random) for part in pieces(random, packet)]
        if random.random() < 0.7:
            random.shuffle(steps)
            steps.sort(key=lambda step: step.data[:1] != b"\x10")
        scripts.append(Script(random.randrange(8), steps).to_bytes())
    return scripts


def mutated(random: Random, data: bytes, other: bytes) -> bytes:
    """A script with one to four changes; `other` is one to take from."""
    script = Script.from_bytes(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        _change(random, script, other)
    return script.to_bytes()[:LONGEST]


def _change(random: Random, script: Script, other: bytes) -> None:
    steps = script.steps
    kind = random.randrange(8)
    if not steps or kind == 0:
        taken = Script.from_bytes(other).steps
        start = random.randrange(len(taken) + 1)
        at = random.randrange(len(steps) + 1)
        steps[at:at] = taken[start : start + random.randrange(1, 6)]
        return
    at = random.randrange(len(steps))
    step = steps[at]
    if kind == 1:
        script.settings = random.randrange(8)
    elif kind == 2:
        del steps[at : at + random.randrange(1, 4)]
    elif kind == 3:
        steps.insert(random.randrange(len(steps) + 1), step._replace(client=random.randrange(CLIENTS)))
    elif kind == 4:
        steps.insert(at, Step(random.randrange(CLIENTS), random.randrange(1, 4), random.randrange(16)))
    elif kind == 5:
        client = random.randrange(CLIENTS)
        steps[at:at] = [Step(client, 0, 0, packet) for packet in conversation(random)[-random.randrange(1, 4) :]]
    elif step.data:
        changed = bytearray(step.data)
        damage(random, changed)
        steps[at] = step._replace(data=bytes(changed[:0xFFFF]))


class Fuzzer:
    """`scripts` are those worth keeping, with what each reached."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._coverage = Coverage()
        self.scripts: list[tuple[bytes, set[Edge]]] = []
        self.reached: set[Edge] = set()
        self.played = 0

    def take(self, data: bytes) -> bool:
        """Play a script and keep it if it reached something new. Raises what the broker lets through."""
        self.played += 1
        edges = self._coverage.run(data)
        if edges <= self.reached:
            return False
        self.reached |= edges
        self.scripts.append((data, edges))
        return True

    def next(self) -> bytes:
        random = self._random
        recent = random.random() < 0.3
        data = self.scripts[-random.randrange(1, min(20, len(self.scripts)) + 1)][0] if recent else self._any()
        return mutated(random, data, self._any())

    def _any(self) -> bytes:
        return self._random.choice(self.scripts)[0]

    def smallest(self) -> list[bytes]:
        """Few and short scripts that together reach nearly all that was reached: shortest first, each that adds."""
        kept: list[bytes] = []
        reached: set[Edge] = set()
        size = 0
        for data, edges in sorted(self.scripts, key=lambda each: len(each[0])):
            length = len(_packed(data))
            if not edges <= reached and len(kept) < MOST_KEPT and size + length < MOST_BYTES:
                kept.append(data)
                reached |= edges
                size += length
        return kept


def read(file: Path) -> list[bytes]:
    return [_unpacked(line) for line in file.read_text().split()] if file.exists() else []


def write(file: Path, scripts: Iterable[bytes]) -> None:
    file.write_text("".join(f"{_packed(data)}\n" for data in scripts))


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _unpacked(line: str) -> bytes:
    return zlib.decompress(base64.b64decode(line))


def run(minutes: float, seed: int, corpus: Path, save: bool) -> int:
    """The exit status."""
    fuzzer = Fuzzer(seed)
    data = b""
    told = began = time.monotonic()
    try:
        for data in [*read(corpus), *first_scripts(Random(seed))]:
            fuzzer.take(data)
        while (now := time.monotonic()) < began + 60 * minutes:
            data = fuzzer.next()
            fuzzer.take(data)
            if now > told + 10:
                told = now
                print(_progress(fuzzer, seed, now - began), flush=True)
    except Exception:
        file = Path(f"fuzz-failure-{hashlib.sha256(data).hexdigest()[:12]}.txt")
        write(file, [data])
        print(f"FAILED with seed {seed} after {fuzzer.played} scripts; the script is in {file}", file=sys.stderr)
        raise
    print(_progress(fuzzer, seed, time.monotonic() - began))
    if save:
        write(corpus, fuzzer.smallest())
    return 0


def _progress(fuzzer: Fuzzer, seed: int, seconds: float) -> str:
    return (
        f"seed {seed}: {fuzzer.played:,} scripts ({fuzzer.played / seconds:,.0f}/s), "
        f"{len(fuzzer.reached):,} steps between lines, {len(fuzzer.scripts):,} scripts worth keeping"
    )


def main(minutes: float, seed: int, corpus: Path = CORPUS, save: bool = False) -> int:
    if any(module_states().values()):  # compiled code has no lines
        if not Path("src/headwater").is_dir():
            print("coverage needs the plain sources: run it in the project's folder", file=sys.stderr)
            return 2
        words: Sequence[str] = [sys.executable, "-m", "headwater_lab.fuzz", "--coverage", "--minutes", str(minutes)]
        words = [*words, "--seed", str(seed), *(["--save"] if save else [])]
        return subprocess.run(words, env=os.environ | {"PYTHONPATH": "src"}, check=False).returncode
    return run(minutes, seed, corpus, save)
