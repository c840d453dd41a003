"""Names of nodes, resolved beside the event loop.

`getaddrinfo` blocks, for half a minute where a name server is silent, and cannot be interrupted. So it runs in threads
of its own that nobody waits for at the end (asyncio's own would be joined then), a few at a time, one for a name.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterable
from typing import Final

from headwater.peering.membership.seeds import Seed, names_to_resolve

MOST_LOOKUPS: Final = 8
"""Names that are looked up at a time; others wait."""


class Resolver:
    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Future[list[str] | OSError]] = {}
        self._slots = asyncio.Semaphore(MOST_LOOKUPS)

    async def addresses(self, host: str) -> list[str]:
        """Of a name, in the order in which they are to be tried. Raises OSError."""
        found = self._under_way.get(host)
        if found is None:
            await self._slots.acquire()
            found = self._under_way.get(host)  # somebody else may have asked meanwhile
            if found is None:
                found = self._look_up(host)
            else:
                self._slots.release()
        result = await asyncio.shield(found)
        if isinstance(result, OSError):
            raise result
        return result

    async def resolve(self, seeds: Iterable[Seed], seconds: float) -> dict[str, list[str]]:
        """The addresses of all names among these, for `seed_addresses`; those that have none by then are left out."""
        names = names_to_resolve(seeds)
        found: dict[str, list[str]] = {}

        async def look_up(name: str) -> None:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(seconds):
                    found[name] = await self.addresses(name)

        await asyncio.gather(*(look_up(name) for name in names))
        return {name: found[name] for name in names if name in found}

    def _look_up(self, host: str) -> asyncio.Future[list[str] | OSError]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[str] | OSError] = loop.create_future()
        self._under_way[host] = future

        def done(result: list[str] | OSError) -> None:
            del self._under_way[host]
            self._slots.release()
            if not future.done():
                future.set_result(result)

        def body() -> None:
            result = addresses_of(host)
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(done, result)

        threading.Thread(target=body, name=f"headwater-resolve-{host}", daemon=True).start()
        return future


def addresses_of(host: str) -> list[str] | OSError:
    """Blocks. An error is a result, too."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError:  # of a part that is empty or too long
        return socket.gaierror(socket.EAI_NONAME, "that is no host name")
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
