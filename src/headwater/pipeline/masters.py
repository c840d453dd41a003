"""Whether somebody answers at the address of a Spark: the clients of Spark try for minutes before they say so."""

from __future__ import annotations

import re
import socket
from typing import Final

PORTS: Final = {"spark": 7077, "sc": 15002}
"""Of Spark's standalone masters and of Spark Connect, if an address does not say."""
PATIENCE: Final = 10.0
KINDS: Final = "local[2], spark://host:7077 or sc://host:15002"


class NoMaster(Exception):
    """There is no Spark at that address; the text says what to do."""


def check_master(master: str) -> None:
    """Raises NoMaster. Of several masters (`spark://one:7077,other:7077`) one is enough."""
    kind, _, rest = master.partition("://")
    if re.fullmatch(r"local(\[(\*|\d+)(, *\d+)?\])?", master) is not None:
        return
    if kind not in PORTS or not rest:
        raise NoMaster(f"{master!r} is no address of a Spark; write {KINDS}")
    addresses = [_address(each, master, PORTS[kind]) for each in re.split(r"[/;]", rest)[0].split(",")]
    failures = [failure for each in addresses if (failure := _try(*each)) is not None]
    if len(failures) == len(addresses):
        raise NoMaster(f"nobody answers at {master} ({'; '.join(failures)}): is Spark running there?")


def _address(text: str, master: str, port: int) -> tuple[str, int]:
    found = re.fullmatch(r"(?P<host>\[[^\]]+\]|[^:\[\]]+)(:(?P<port>\d{1,5}))?", text)
    if found is None:
        raise NoMaster(f"{master!r} is no address of a Spark; write {KINDS}")
    return found["host"].strip("[]"), int(found["port"] or port)


def _try(host: str, port: int) -> str | None:
    """Why not, or None."""
    try:
        with socket.create_connection((host, port), PATIENCE):
            return None
    except (OSError, OverflowError) as error:
        return f"{host}:{port}: {error}"
