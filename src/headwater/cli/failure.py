"""How a command ends in failure: one sentence and a number, never a traceback."""

from __future__ import annotations

import os
import sys
from typing import Final, NoReturn

import typer

GENERAL: Final = 1
TIMED_OUT: Final = 27
"""As mosquitto_sub's `-W`."""


def fail(command: str, text: str, status: int = GENERAL, *, quiet: bool = False) -> NoReturn:
    complain(command, text, quiet=quiet)
    raise typer.Exit(status)


def complain(command: str, text: str, *, quiet: bool = False) -> None:
    if not quiet:
        print(f"headwater {command}: {text}", file=sys.stderr, flush=True)


def forget_output() -> None:
    """What could not be written would be tried once more when Python ends, and complained of."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
