"""Faults are commands: one disturbs, one heals. They run one after the other, at times that a seed decides."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from headwater_lab.check_broker.features import CannotRun
from headwater_lab.check_broker.history import Fault, History, Outcome

COMMAND_LIMIT: Final = 60.0
"""Seconds that a command may take."""
WORDS: Final = 300
"""Characters of what a command said."""


@dataclass(frozen=True, slots=True)
class FaultCommands:
    """`heal` is "" for one that heals by itself."""

    name: str
    start: str
    heal: str = ""


def parse_faults(starts: Sequence[str], heals: Sequence[str], file: Path | None) -> list[FaultCommands]:
    """From NAME=COMMAND of the command line, and a TOML file with [fault.NAME] start, heal. Raises ValueError."""
    found: dict[str, dict[str, str]] = {}
    if file is not None:
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError) as problem:
            raise ValueError(f"cannot read {file}: {problem}") from None
        found = _of_file(content, file)
    for name, command in map(_split, starts):
        found[name] = {"start": command}
    for name, command in map(_split, heals):
        if name not in found:
            raise ValueError(f"there is no --fault {name}=… for --heal {name}")
        found[name]["heal"] = command
    return [FaultCommands(name, **commands) for name, commands in found.items()]


def _of_file(content: Mapping[str, object], file: Path) -> dict[str, dict[str, str]]:
    table = content.get("fault")
    if not isinstance(table, dict) or not all(
        isinstance(each, dict)
        and "start" in each
        and set(each) <= {"start", "heal"}
        and all(isinstance(command, str) for command in each.values())
        for each in table.values()
    ):
        raise ValueError(f"{file} needs tables [fault.NAME] with start = and, if need be, heal =")
    return {name: dict(each) for name, each in table.items()}


def _split(text: str) -> tuple[str, str]:
    name, equals, command = text.partition("=")
    if not name.strip() or not equals or not command.strip():
        raise ValueError(f"{text!r} is not NAME=COMMAND")
    return name.strip(), command.strip()


class Disturber:
    """`every` and `lasts` are seconds: from one fault's end to the next on average, and of a fault at most."""

    def __init__(
        self, history: History, faults: Sequence[FaultCommands], random: Random, every: float, lasts: float
    ) -> None:
        self._history = history
        self._faults = list(faults)
        self._random = random
        self._every = every
        self._lasts = lasts
        self.active = ""

    async def disturb(self, seconds: float) -> None:
        """For that long; at the end nothing is disturbed. Raises CannotRun if a command fails."""
        deadline = self._history.now + seconds
        turns: list[FaultCommands] = []
        while self._faults:
            pause = self._every * self._random.uniform(0.5, 1.5)
            if self._history.now + pause >= deadline:
                break
            await asyncio.sleep(pause)
            if not turns:
                turns = self._random.sample(self._faults, len(self._faults))
            await self._one(turns.pop())
        await asyncio.sleep(max(0.0, deadline - self._history.now))

    async def _one(self, fault: FaultCommands) -> None:
        operation = self._history.invoke(Fault(name=fault.name))
        self.active = fault.name
        await _command(fault.name, "start", fault.start)
        if fault.heal:
            try:
                await asyncio.sleep(self._lasts * self._random.uniform(0.3, 1.0))
            finally:  # also when the run is stopped: what was disturbed must not stay so
                await asyncio.shield(_command(fault.name, "heal", fault.heal))
        self.active = ""
        self._history.complete(operation, Outcome.OK)


async def _command(name: str, which: str, command: str) -> None:
    """Its output goes to a file: what it starts in the background may keep it open."""
    with tempfile.TemporaryFile() as output:
        process = await asyncio.create_subprocess_shell(
            command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            async with asyncio.timeout(COMMAND_LIMIT):
                status = await process.wait()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            raise CannotRun(
                f"fault {name}: its {which} command did not end within {COMMAND_LIMIT:g} s; what it starts has to run "
                f"in the background: {command}"
            ) from None
        if status:
            output.seek(0)
            said = output.read()[-WORDS:].decode(errors="replace").strip()
            raise CannotRun(f"fault {name}: its {which} command failed with status {status}: {said or command}")
