"""What keeps a broker from starting with its settings: found before it starts, by the code that would find it then.

`check_needs` and `cannot_listen` are what a start itself uses (node/run.py), `check_cluster` what every broker does.
`problems` goes through all that a start looks at, and says everything that is wrong and not only the first: libraries,
settings that need each other, files, places to listen on, the data folder. Places are listened on for a moment, and the
data folder is locked for one; nothing is made or changed.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from headwater.disk.errors import StorageError
from headwater.node.config import Config
from headwater.node.links.checking import check_cluster
from headwater.node.links.settings import SHORTEST_SECRET, ClusterSettings
from headwater.node.settings import ConfigError
from headwater.node.transports.contexts import CertificateError
from headwater.node.transports.settings import ListenerSettings, TlsSettings
from headwater.node.transports.sockets import address_text, close_all, listen_tcp, listen_unix
from headwater.node.workers.parts import check_workers, name_of

ADMIN_NEEDS: Final = ("fastapi", "uvicorn", "prometheus_client")
OBJECTS_NEED: Final = ("obstore", "pyarrow")
STORE_NEEDS: Final = ("rocksdict", "numpy", "orjson", "zstandard")
REST_NEEDS: Final = ("fastapi", "uvicorn")
DATA_NEEDS: Final = ("rocksdict",)
ADVICE: Final = {
    errno.EADDRINUSE: "; is another broker running there? Stop it, or choose another port.",
    errno.EADDRNOTAVAIL: "; `host` is an address of this machine, or * for all",
    errno.EACCES: "; this user may not: choose a port from 1024 on, give the process CAP_NET_BIND_SERVICE, or (Unix "
    "socket) let the user write to its folder",
    errno.ENOENT: "; make its folder first",
}


def problems(config: Config, *, is_running: bool = False) -> list[str]:
    """Each in a sentence. `is_running`: a broker runs with these settings, so its ports and its folder are in use."""
    found = []
    for check in _checks(config, is_running):
        try:
            check()
        except (ConfigError, CertificateError, StorageError) as error:
            found.append(str(error))
        except OSError as error:
            found.append(cannot_listen(error, config))
    return list(dict.fromkeys(found))


def _checks(config: Config, is_running: bool) -> Iterator[Callable[[], object]]:
    yield partial(check_needs, config)
    yield partial(check_cluster, config.cluster)
    yield partial(check_workers, config)
    yield partial(_check_logs, config)
    yield from _files(config)
    if not is_running:
        yield from _places(config)
        for part in _parts(config):
            yield partial(_check_data, part)


# ---- libraries ---------------------------------------------------------------------------------------------------


def check_needs(config: Config) -> None:
    """Say what is missing for what is configured before anything is started. Raises ConfigError."""
    keeps = bool(config.data_dir) and config.durability != "none"
    for needed, what, extra, libraries, without in (
        (config.admin.enabled, "the admin API", "admin", ADMIN_NEEDS, "set admin.enabled to false"),
        (config.store.enabled, "the delivery store", "store", STORE_NEEDS, "set store.enabled to false"),
        (config.rest.enabled, "REST", "store", REST_NEEDS, "set rest.enabled to false"),
        (_moves(config), "object storage", "objects", OBJECTS_NEED, "leave store.history.url empty"),
        (keeps, "a data folder", "durable", DATA_NEEDS, "leave data_dir empty"),
    ):
        missing = [name for name in libraries if needed and find_spec(name) is None]
        if missing:
            raise ConfigError(f"{what} needs {' and '.join(missing)}: pip install 'headwater[{extra}]', or {without}")


def _moves(config: Config) -> bool:
    """Whether messages go to object storage that is no folder."""
    from headwater.objects import is_remote

    return bool(config.store.history.url) and is_remote(config.store.history.url)


# ---- the cluster -------------------------------------------------------------------------------------------------


def _cluster_files(cluster: ClusterSettings) -> Iterator[Callable[[], object]]:
    """Not `join_file`, which may come later."""
    from headwater.node.links.contexts import LinkContexts

    if cluster.secret_file:
        yield partial(_check_secret, cluster.secret_file)
    if cluster.tls is not None:
        yield partial(LinkContexts, cluster.tls)


def _check_secret(path: str) -> None:
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cannot read cluster.secret_file {path}: {error.strerror}") from error
    if len(secret) < SHORTEST_SECRET:
        raise ConfigError(
            f"the secret in cluster.secret_file {path} has fewer than {SHORTEST_SECRET} characters; "
            "`openssl rand -hex 32` makes one"
        )


# ---- files -------------------------------------------------------------------------------------------------------


def _files(config: Config) -> Iterator[Callable[[], object]]:
    """Read as a broker would that starts with them. A start has no need of all this, and does not load it for us."""
    from headwater.node.access.errors import read_text
    from headwater.node.access.passwords import PasswordFile
    from headwater.node.access.rules import parse_rules
    from headwater.node.access.tokens import Tokens
    from headwater.node.admin.secret import read_token, read_token_file
    from headwater.node.transports.contexts import make_context

    for listener in config.listeners:
        if listener.tls is not None:
            yield partial(make_context, listener.tls, listener.protocol)
    access = config.access
    if access.password_file:
        yield partial(PasswordFile.load, access.password_file)
    if access.jwt_key_file:
        yield partial(Tokens, access)
    if access.acl_file:
        yield lambda: parse_rules(read_text(access.acl_file, "file of rules"), access.acl_file)
    if config.admin.enabled:
        yield partial(read_token, config.admin)
    if config.rest.enabled and config.rest.token_file:
        yield partial(read_token_file, config.rest.token_file, "rest.token_file")
    if config.rest.enabled and config.rest.certificate:
        tls = TlsSettings(certificate=config.rest.certificate, key=config.rest.key)
        yield partial(make_context, tls, "http")
    if config.bridges:
        from headwater.node.bridge.preparing import prepare_all

        yield partial(prepare_all, config)
    if config.forward:
        from headwater.node.forwarding.preparing import prepare_all as prepare_forwards

        yield partial(prepare_forwards, config)
    if config.cluster.enabled:
        yield from _cluster_files(config.cluster)


def _check_logs(config: Config) -> None:
    for each in config.log_to:
        kind, _, name = each.partition(":")
        if kind != "file":
            continue
        path = Path(name)
        place = path if path.exists() else path.parent
        if path.is_dir() or not place.exists() or not os.access(place, os.W_OK):
            why = "it is a folder" if path.is_dir() else "no such folder" if not place.exists() else "not writable"
            raise ConfigError(f"cannot log to {each}: {why}")


# ---- places to listen on -----------------------------------------------------------------------------------------


def cannot_listen(error: OSError, config: Config) -> str:
    where = error.filename or address_text(config.host, config.port)
    return f"cannot listen on {where}: {error.strerror or error}{advice(error)}"


def advice(error: OSError) -> str:
    """What to do when nothing can be listened on."""
    if isinstance(error, socket.gaierror):
        return "; `host` is a name or an address of this machine, or * for all"
    return ADVICE.get(error.errno or 0, "")


def _places(config: Config) -> Iterator[Callable[[], object]]:
    """All are open together, so that two in one place are found."""
    from headwater.node.transports.accepting import listener_settings

    closing: list[Callable[[], None]] = []
    for settings in listener_settings(config):
        yield partial(_open_listener, settings, closing)
    for number in range(config.workers if config.rest.enabled else 0):
        port = config.rest.port and config.rest.port + number
        yield partial(_open, config.rest.host, port, "http", "for REST (rest.host, rest.port)", closing)
    if config.admin.enabled:
        what = "for the admin API (admin.host, admin.port)"
        yield partial(_open, config.admin.host, config.admin.port, "http", what, closing)
    if config.cluster.enabled:
        yield partial(_open_cluster, config.cluster, closing)
    yield lambda: [close() for close in closing]


def _open_listener(settings: ListenerSettings, closing: list[Callable[[], None]]) -> None:
    from headwater.node.transports.listener import Listener

    listener = Listener(settings.model_copy(update={"tls": None}))  # certificates are looked at before
    listener.open()
    closing.append(listener.close)


def _open(host: str, port: int, scheme: str, what: str, closing: list[Callable[[], None]]) -> None:
    try:
        sockets = listen_tcp(host, port)
    except OSError as error:
        error.filename = f"{scheme}://{address_text(host, port)} {what}"
        raise
    closing.append(partial(close_all, sockets))


def _open_cluster(cluster: ClusterSettings, closing: list[Callable[[], None]]) -> None:
    from headwater.node.links.listening import UNIX_MODE

    if not cluster.unix:
        _open(cluster.host, cluster.port, "cluster", "for nodes (cluster.host, cluster.port)", closing)
        return
    try:
        opened = listen_unix(cluster.unix, UNIX_MODE)
    except OSError as error:
        error.filename = f"{cluster.unix} for nodes (cluster.unix)"
        raise
    closing.append(partial(close_all, [opened]))


# ---- the data folder ---------------------------------------------------------------------------------------------


def _parts(config: Config) -> list[Config]:
    """With the data folder of each worker."""
    data = Path(config.data_dir)
    if config.workers == 1 or not config.data_dir or not data.is_dir():
        return [config]
    folders = [str(data / name_of(number)) for number in range(config.workers)]
    return [config.model_copy(update={"data_dir": folder}) for folder in folders]


def _check_data(config: Config) -> None:
    """Whose it is, that nobody uses it, and that this version knows it. What is in it is not read."""
    if not config.data_dir or config.durability == "none" or find_spec("rocksdict") is None:
        return
    path = Path(config.data_dir)
    if not path.exists():
        if not path.parent.is_dir():
            raise StorageError(f"cannot make the data folder {path}: there is no {path.parent}; make that one first")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise StorageError(f"cannot make the data folder {path}: {path.parent} is not writable")
        return
    if not path.is_dir():
        raise StorageError(f"the data folder {path} is not a folder; name another one")
    from headwater.disk.lock import locked
    from headwater.node.persistence.folder import MESSAGES, is_new, read_description
    from headwater.node.persistence.schema import check_schema

    with locked(path):
        if not is_new(path):
            check_schema(path, read_description(path).schema)
    if config.store.enabled and (path / MESSAGES).exists():
        from headwater.store.messages_folder import MessagesFolder

        MessagesFolder(path / MESSAGES, config.store.id or None, True).release()
