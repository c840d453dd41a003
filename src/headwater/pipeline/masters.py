"""Whether somebody answers at the address of a Spark: the clients of Spark try for minutes before they say so."""

from __future__ import annotations

import os
import re
import socket
from typing import Final
from urllib.parse import urlsplit

PORTS: Final = {"spark": 7077, "sc": 15002}
"""Of Spark's standalone masters and of Spark Connect, if an address does not say."""
PATIENCE: Final = 10.0
KINDS: Final = "local[2], spark://host:7077, sc://host:15002, k8s://https://host:443 or yarn"
HADOOP: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


class NoMaster(Exception):
    """There is no Spark at that address; the text says what to do."""


def check_master(master: str) -> None:
    """Raises NoMaster. Of several masters (`spark://one:7077,other:7077`) one is enough."""
    kind, _, rest = master.partition("://")
    if master == "yarn":
        if not any(os.environ.get(name) for name in HADOOP):
            raise NoMaster(
                "HADOOP_CONF_DIR is not set: it names the folder with yarn-site.xml, which says where YARN is"
            )
        return
    if kind == "k8s":
        _check_kubernetes(master, rest)
        return
    if re.fullmatch(r"local(\[(\*|\d+)(, *\d+)?\])?", master) is not None:
        return
    if kind not in PORTS or not rest:
        raise NoMaster(f"{master!r} is no address of a Spark; write {KINDS}")
    addresses = [_address(each, master, PORTS[kind]) for each in re.split(r"[/;]", rest)[0].split(",")]
    failures = [failure for each in addresses if (failure := _try(*each)) is not None]
    if len(failures) == len(addresses):
        raise NoMaster(f"nobody answers at {master} ({'; '.join(failures)}): is Spark running there?")


def _check_kubernetes(master: str, rest: str) -> None:
    url = urlsplit(rest if "://" in rest else f"https://{rest}")
    try:
        port = url.port or {"http": 80, "https": 443}[url.scheme]
    except (KeyError, ValueError):
        raise NoMaster(f"{master!r} is no address of a Spark; write {KINDS}") from None
    failure = _try(url.hostname or "", port)
    if failure is not None:
        raise NoMaster(f"no API server answers at {master} ({failure}): is Kubernetes there?")


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
