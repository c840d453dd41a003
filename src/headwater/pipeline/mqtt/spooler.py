"""The process that holds the connections to the broker and the spool: `python -m headwater.pipeline.mqtt.spooler`.

The source starts it on the driver's machine with its options (JSON) on standard input; nobody else needs to. In the
spool folder it keeps

    lock           held (flock) as long as it lives: there is one spooler for a folder
    address.json   where it listens, and the token; port and token stay the same over restarts, if the port is free
    progress.json, *.spool    the spool
    spooler.log    what happened

It ends when nobody has asked it for `linger` seconds, when it is told to leave, on SIGTERM, and when it cannot go on;
the broker keeps the sessions, and the next spooler goes on with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

from headwater.pipeline.mqtt.intake import Intake
from headwater.pipeline.mqtt.options import ReadOptions
from headwater.pipeline.mqtt.segment import write_whole
from headwater.pipeline.mqtt.service import Server, Service
from headwater.pipeline.mqtt.spool import Spool

log: Final = logging.getLogger("headwater.pipeline.mqtt")

ADDRESS: Final = "address.json"
LOCK: Final = "lock"
LOCKED: Final = 75
"""Exit status: another spooler has the folder."""


class Spooler:
    """Serves until it has a reason to end."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._error = ""

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        options = self._options
        spool = Spool(options.folder, options.spool_bytes, options.spool_messages)
        intake = Intake(options, spool)
        leaving = asyncio.Event()

        async def leave() -> None:
            leaving.set()

        former = former_address(options.folder)
        service = Service(
            spool,
            former.get("token") or secrets.token_urlsafe(24),
            released=lambda: _call(loop, intake.released()),
            leave=lambda: _call(loop, leave()),
            described=lambda: self._described(intake),
        )
        loop.add_signal_handler(signal.SIGTERM, leaving.set)
        with _served(options.spooler_host, int(former.get("port") or 0), service) as port:
            address = {"host": options.spooler_host, "port": port, "token": service.token, "pid": os.getpid()}
            write_whole(options.folder / ADDRESS, json.dumps(address))
            log.info("serving %s on port %d, messages %d to %d", options.folder, port, *_range(spool))
            receiving = loop.create_task(self._take(intake))
            try:
                await self._until_done(leaving, service)
            finally:
                receiving.cancel()
                await asyncio.wait([receiving])
        log.info("left, messages %d to %d are not committed", *_range(spool))

    async def _take(self, intake: Intake) -> None:
        """What goes wrong for good is kept for whoever asks."""
        try:
            await intake.run()
        except* Exception as errors:
            reasons = [str(error) or type(error).__name__ for error in errors.exceptions]
            self._error = "; ".join(dict.fromkeys(reasons))
            log.error("no more messages are taken: %s", self._error, exc_info=errors)

    async def _until_done(self, leaving: asyncio.Event, service: Service) -> None:
        while not leaving.is_set() and service.idle < self._options.linger:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.05, self._options.linger - service.idle)):
                    await leaving.wait()

    def _described(self, intake: Intake) -> dict[str, Any]:
        return {
            "options": self._options.digest(),
            "error": self._error,
            "connected": intake.connected,
            "unacknowledged": intake.unacknowledged,
            "is_subscribed": intake.is_subscribed,
            "trouble": intake.trouble,
            "quiet": time.monotonic() - intake.took_at,
        }


def former_address(folder: Path) -> dict[str, Any]:
    """Where a spooler of this folder listens or did so last; empty if there was none."""
    try:
        found: dict[str, Any] = json.loads((folder / ADDRESS).read_text())
    except FileNotFoundError:
        return {}
    return found


@contextlib.contextmanager
def _served(host: str, port: int, service: Service) -> Iterator[int]:
    try:
        server = Server(host, port, service)
    except OSError:
        if not port:
            raise
        log.warning("port %d is taken by another program: executors that are reading will fail and be run again", port)
        server = Server(host, 0, service)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def _call(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    asyncio.run_coroutine_threadsafe(work, loop)


def _range(spool: Spool) -> tuple[int, int]:
    return spool.released, spool.next


def main() -> int:
    options = ReadOptions.from_json(sys.stdin.read())
    options.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(message)s")
    with (options.folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return LOCKED
        asyncio.run(Spooler(options).run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
