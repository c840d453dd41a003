"""What a spool has to remember beside its messages: a small file that is replaced as a whole."""

from __future__ import annotations

import dataclasses
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headwater.pipeline.mqtt.segment import write_whole

NAME: Final = "progress.json"


@dataclass(frozen=True)
class Progress:
    """`id` is the spool's, for ever; Spark has committed all before `released`; `sessions` has for each connection
    which session with the broker it is in, counted from 1; `filters` are what the sessions are subscribed to."""

    id: str = field(default_factory=lambda: secrets.token_hex(6))
    released: int = 0
    sessions: dict[str, int] = field(default_factory=dict)
    filters: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path) -> Progress:
        """That of the folder; a new one, which is on disk when this returns, if there is none."""
        path = folder / NAME
        if path.exists():
            return cls(**json.loads(path.read_text()))
        progress = cls()
        progress.save(folder)
        return progress

    def save(self, folder: Path) -> None:
        """On disk when this returns; after a crash there is the old one or the new one."""
        write_whole(folder / NAME, json.dumps(dataclasses.asdict(self)))
