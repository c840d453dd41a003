"""The HTTP process: REST and the admin API on sockets that the node listens on, asking the node over a link.

It lives as long as the link does. Signals of a terminal or a service manager are for the node, which tells it to stop;
if the node is killed, the link ends, and so does this process, at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.node.admin.app import make_app
from headwater.node.admin.token import OPEN
from headwater.node.config import Admin
from headwater.node.delivery.rest_settings import RestSettings
from headwater.node.http.asking import LinkReach, Node
from headwater.node.http.guard import SharedToken
from headwater.node.http.link import Link
from headwater.node.http.memory import ARENAS, GivingBack
from headwater.node.http.state import HISTORY, SharedState
from headwater.node.operations.process import give_way_soon, keep_what_is_freed
from headwater.web.serving import WebServer

if TYPE_CHECKING:
    from headwater.store.following import FollowingStore
    from headwater.store.store import Store

LARGEST_ANSWER: Final = 256 << 20
"""Bytes of an answer of the node, which is trusted."""
MOST_LINES: Final = 200
"""Lines for the log that are on their way at a time; more are left out."""
MANY_FILES: Final = 65_536
AWAY_SOON: Final = {"timeout": "10s", "max_retries": "2", "retry_timeout": "10s"}
"""Of object storage, unless settings say something else: callers wait."""


def main() -> None:
    """Arguments: the descriptors of the link, the shared state and the bell."""
    link, state, bell = map(int, sys.argv[1:4])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _raise_file_limit()
    keep_what_is_freed(ARENAS)
    give_way_soon()
    asyncio.run(_HttpProcess(SharedState(state), bell).run(socket.socket(fileno=link)))


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, MANY_FILES)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _HttpProcess:
    def __init__(self, state: SharedState, bell: int) -> None:
        self._state = state
        self._bell = bell
        self._link = Link({}, self._told, _end, LARGEST_ANSWER)
        self._begin: asyncio.Future[dict[str, Any]]
        self._stop = asyncio.Event()
        self._closing: list[Any] = []

    async def run(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._begin = loop.create_future()
        await loop.create_unix_connection(lambda: self._link, sock=connection)
        settings = await self._begin
        logging.basicConfig(level=settings["log_level"], handlers=[_LogByLink(self._link, loop)])
        node = Node(self._link, loop)
        servers: list[Any] = []
        if settings["rest"] is not None:
            servers.append(await asyncio.to_thread(self._rest, node, **settings["rest"]))
        if settings["admin"] is not None:
            servers.append(self._admin(node, **settings["admin"]))
        for server in servers:
            await asyncio.to_thread(server.start)
        GivingBack(loop).start()
        self._link.tell("serving")
        await self._stop.wait()
        await asyncio.gather(*(asyncio.to_thread(server.stop) for server in servers))
        for close in self._closing:
            await asyncio.to_thread(close)
        logging.shutdown()
        self._link.close()
        await asyncio.sleep(1)  # `_end` ends us

    def _told(self, name: str, said: dict[str, Any]) -> None:
        if name == "begin":
            self._begin.set_result(said)
        elif name == "stop":
            self._stop.set()
        elif name == "log_level":
            logging.getLogger().setLevel(said["level"])

    def _rest(
        self, node: Node, settings: dict[str, Any], sockets: list[int], store: dict[str, Any], peer_token: str
    ) -> Any:
        from headwater.node.delivery.listening import context_of
        from headwater.node.delivery.peers import Members
        from headwater.node.delivery.serving import rest_server
        from headwater.node.http.rest import LinkGate, LinkPrimary
        from headwater.store.following import FollowingStore

        folder = Path(store["folder"])
        followed = FollowingStore(
            folder / "db", folder / "follower", store["id"], LinkPrimary(node, self._state), store["cache"]
        )
        self._closing.append(followed.close)
        served = _with_history(followed, store["history"], self._state) if "history" in store else followed

        def heard() -> None:
            os.read(self._bell, 4096)
            followed.tell_watchers()

        node.loop.call_soon_threadsafe(node.loop.add_reader, self._bell, heard)
        listening = [socket.socket(fileno=each) for each in sockets]
        made = RestSettings(**settings)
        gate, peers = LinkGate(node, self._state), Members(made, peer_token)
        return rest_server(served, gate, made, listening, context_of(made), peers)

    def _admin(self, node: Node, settings: dict[str, Any], sockets: list[int]) -> WebServer:
        made = Admin(**settings)
        app = make_app(LinkReach(node, self._state), SharedToken(self._state))
        listening = [socket.socket(fileno=each) for each in sockets]
        return WebServer(app, listening, made.bounds("admin"), name="admin", open_paths=OPEN)


def _with_history(store: FollowingStore, where: dict[str, Any], state: SharedState) -> Store:
    from headwater.store.history.reading import History
    from headwater.store.history.tiered import TieredStore

    history = History(where["url"], store.id, {**AWAY_SOON, **where["options"]}, where["cache"])
    return TieredStore(store, history, lambda: (state[HISTORY[0]], state[HISTORY[1]]))


def _end(why: str) -> None:
    """The link has ended: nobody is there to serve for, and nothing here has to outlive it."""
    os._exit(0)


class _LogByLink(logging.Handler):
    """What is to be logged goes to the node, and from there where its own lines go."""

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._link = link
        self._loop = loop
        self._under_way = 0

    def emit(self, record: logging.LogRecord) -> None:
        if self._under_way >= MOST_LINES:
            return
        self._under_way += 1
        text = self.format(record).encode("utf-8", "replace").decode()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._tell, record.name, record.levelno, text)

    def _tell(self, name: str, level: int, text: str) -> None:
        self._under_way -= 1
        self._link.tell("log", name=name, level=level, text=text)
