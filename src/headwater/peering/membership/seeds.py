"""Where to look for a cluster: addresses from settings, from a file, from DNS names with several addresses.

Names are resolved elsewhere (that is I/O); here is what to ask for and what to make of the answers. Resolved again from
time to time, a name such as a headless service of Kubernetes leads to nodes that were not there at the start.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .bounds import MAX_SEEDS


class Seed(NamedTuple):
    """A host (name or address) and port, or the path of a Unix socket with port 0."""

    host: str
    port: int

    def __str__(self) -> str:
        if self.port == 0:
            return f"unix:{self.host}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def is_name(self) -> bool:
        """Whether it has to be resolved."""
        if self.port == 0:
            return False
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return True
        return False


def parse_seed(text: str, usual_port: int) -> Seed:
    """`host`, `host:port`, `[IPv6 address]:port` or `unix:PATH`; raises ValueError if it is none."""
    text = text.strip()
    if text.startswith("unix:") and len(text) > len("unix:"):
        return Seed(text.removeprefix("unix:"), 0)
    wrong = ValueError(f"{text!r} is not of the form host:port ([address]:port for IPv6, or unix:PATH)")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or ":" not in host:
            raise wrong
        port = rest[1:] if rest else str(usual_port)
    else:
        host, colon, port = text.partition(":")
        port = port if colon else str(usual_port)
    valid = host and not any(each.isspace() or each in "[],#/" for each in host)
    if not valid or not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise wrong
    return Seed(host, int(port))


def parse_seeds(texts: Iterable[str], usual_port: int) -> list[Seed]:
    """Without repetitions; raises ValueError if one is malformed or there are more than `MAX_SEEDS`."""
    found = list(dict.fromkeys(parse_seed(each, usual_port) for each in texts))
    if len(found) > MAX_SEEDS:
        raise ValueError(f"more than {MAX_SEEDS} seeds")
    return found


def parse_seed_file(content: str, usual_port: int) -> list[Seed]:
    """One or more on a line, divided by commas or spaces; from `#` on it is a comment."""
    lines = (line.partition("#")[0].replace(",", " ") for line in content.splitlines())
    return parse_seeds((each for line in lines for each in line.split()), usual_port)


def names_to_resolve(seeds: Iterable[Seed]) -> list[str]:
    return list(dict.fromkeys(each.host for each in seeds if each.is_name()))


def seed_addresses(seeds: Iterable[Seed], resolved: Mapping[str, Sequence[str]], own: Iterable[str] = ()) -> list[str]:
    """Addresses to contact, at most `MAX_SEEDS`: each name gives all its addresses, and one not resolved gives none.

    `own` are this node's addresses, which are left out: the same list of seeds may be given to all nodes.
    """
    found: dict[str, None] = {}
    for seed in seeds:
        hosts = resolved.get(seed.host, ()) if seed.is_name() else (seed.host,)
        found.update(dict.fromkeys(str(Seed(host, seed.port)) for host in hosts))
    mine = set(own)
    return [each for each in found if each not in mine][:MAX_SEEDS]
