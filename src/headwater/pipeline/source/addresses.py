"""Where stores are: the addresses that were given, those in a file that may change while a query runs, and those of
the other stores of their edges.

Theory. A node of an edge says which stores the edge has (`GET /v1/edge`), so one address is enough, and stores that
come later are found. It also says which have ended: nothing more comes to them, so one that has been read to its end is
not missed when its node is gone.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from headwater.pipeline.options import OptionError
from headwater.pipeline.source.settings import Settings
from headwater.store.directory import Directory
from headwater.store.reader import Unreachable

log = logging.getLogger(__name__)

BETWEEN_DIRECTORIES: Final = 1.0
"""Seconds for which what the nodes have said of their edges is taken for true."""
TIMEOUT: Final = 5.0


class Addresses:
    """A file that is away for a moment changes nothing, nor does a node that does not answer."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._last: list[str] | None = None
        self._directories: dict[str, Directory | None] = {}
        """What the node at an address has said last; None: it knows of no edge."""
        self._asked_at = -BETWEEN_DIRECTORIES
        self.ends: dict[str, int] = {}
        """Of stores to which nothing more comes, by their ids: the last position."""
        self._ended: dict[str, str] = {}
        """Their ids, by their addresses."""

    def now(self) -> list[str]:
        """OptionError: the file cannot be read at first. Refused: a node may not be asked for its edge, or names one to
        which who asks must not be shown."""
        given = self.given()
        return self._followed(given) if self.settings.follow else given

    def given(self) -> list[str]:
        """Without the others of their edges. OptionError: the file cannot be read at first."""
        try:
            self._last = self.settings.addresses()
        except (OSError, UnicodeDecodeError) as error:
            why = f"the file of addresses {self.settings.urls_file} cannot be read: {error}"
            if self._last is None:
                raise OptionError(why) from None
            log.warning("%s; those from before are used", why)
        return self._last

    def ended_at(self, url: str) -> str | None:
        """The id of the store there, if it has ended."""
        return self._ended.get(url)

    def _followed(self, given: list[str]) -> list[str]:
        if time.monotonic() - self._asked_at >= BETWEEN_DIRECTORIES:
            self._directories = {url: self._directory(url) for url in given}
            self._asked_at = time.monotonic()
        found = {url: each for url, each in self._directories.items() if each is not None and url in given}
        own = {each.node: url for url, each in found.items()}
        known = Directory()
        for each in found.values():
            known = known.joined(each)
        nodes = {place.node for place in known.places.values()}
        urls = [url for url in given if url not in found or found[url].node in nodes]  # others have no store
        self.ends, self._ended = {}, {}
        for place in known.places.values():
            url = own.get(place.node, place.url)
            if url and url not in urls:
                urls.append(url)
            if place.ended is not None and url:
                self.ends[place.id] = place.ended
                self._ended[url] = place.id
        return urls

    def _directory(self, url: str) -> Directory | None:
        """Raises Refused."""
        known = self._directories.get(url)
        try:
            client = self.settings.client(url, retries=0, timeout=TIMEOUT)
            found = client.directory()
            if found is not None:
                for place in found.places.values():
                    if place.url and place.node != found.node:
                        client.at(place.url)
        except (Unreachable, ValueError):  # that is told by whoever asks for the store
            return known
        return found
