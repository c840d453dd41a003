"""Where the operator says that the cluster is: the addresses to join.

    settings, file, names (resolving.py) -> addresses, again every `RESOLVE_AGAIN` seconds

Names may lead elsewhere by then, and the file may have others. For gossip, the addresses of members that were known
before count as well: a node finds its cluster even if all addresses to join have moved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headwater.node.links.links import Links
from headwater.node.links.resolving import Resolver
from headwater.node.links.settings import PORT, ClusterSettings
from headwater.peering.membership.seeds import Seed, parse_seed_file, parse_seeds, seed_addresses

log = logging.getLogger("headwater.cluster")

RESOLVE_AGAIN: Final = 10.0
RESOLVE_TIMEOUT: Final = 5.0


class Seeking:
    """`own` says where this node itself listens; `found` is told where others may be, inside a turn."""

    def __init__(
        self,
        settings: ClusterSettings,
        links: Links,
        resolver: Resolver,
        own: Callable[[], list[str]],
        found: Callable[[list[str]], None],
    ) -> None:
        self.addresses: list[str] = []
        self.has_looked = False
        """Names were resolved."""
        self._links = links
        self._resolver = resolver
        self._own = own
        self._found = found
        self._seeds = parse_seeds(settings.join, PORT)
        self._file = settings.join_file
        self._file_seeds: list[Seed] = []
        self._resolving: asyncio.Task[None] | None = None

    @property
    def is_alone(self) -> bool:
        """Whether there is no address to join but this node's own."""
        return not self.addresses if self.has_looked else not (self._seeds or self._file)

    def begin(self) -> None:
        """With the members of before, until names are resolved."""
        self._use([])

    def start(self) -> None:
        """Resolve at once, and from now on."""
        self.stop()
        self._resolving = asyncio.get_running_loop().create_task(self._resolve())

    def stop(self) -> None:
        if self._resolving is not None:
            self._resolving.cancel()

    def add(self, addresses: list[str]) -> None:
        """Raises ValueError."""
        self._seeds = parse_seeds([*map(str, self._seeds), *addresses], PORT)

    def clear(self) -> None:
        """Look for nobody, but for those in the file."""
        self._seeds = []

    async def _resolve(self) -> None:
        while True:
            seeds = [*self._seeds, *self._read_file()]
            resolved = await self._resolver.resolve(seeds, RESOLVE_TIMEOUT)
            with self._links.server.turn():
                if not self._links.has_left:
                    self._use(seed_addresses(seeds, resolved, own=self._own()))
                    self.has_looked = True
            await asyncio.sleep(RESOLVE_AGAIN)

    def _use(self, found: list[str]) -> None:
        self.addresses = found
        known = [each for each in self._links.spooling.members.values() if each and each not in found]
        self._found([*found, *known])

    def _read_file(self) -> list[Seed]:
        if not self._file:
            return []
        try:
            self._file_seeds = parse_seed_file(Path(self._file).read_text(), PORT)
        except (OSError, ValueError) as error:
            log.warning("cluster.join_file %s: %s; what it had before is used", self._file, error)
        return self._file_seeds
