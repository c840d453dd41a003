"""What each worker has of the node's settings, and where it keeps its part of the data.

    DATA_DIR/worker-0/      a data folder as a broker has it alone, with its delivery store
    DATA_DIR/worker-1/
    DATA_DIR/links/         the Unix sockets over which workers are linked; only this user may enter

Sessions are at the worker where their clients connected, so a folder that nobody opens would be sessions lost: there
may be more workers than folders (new ones begin empty), and never fewer.
"""

from __future__ import annotations

import base64
import pickle
import re
import sys
import tempfile
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

from pydantic import SecretStr

from headwater.disk.lock import make_folder
from headwater.node.config import Config
from headwater.node.forwarding.settings import ForwardSettings
from headwater.node.links.checking import check_cluster
from headwater.node.links.settings import ClusterSettings
from headwater.node.persistence.folder import DESCRIPTION
from headwater.node.settings import ConfigError

CLUSTER: Final = "workers"
LINKS: Final = "links"
LONGEST_PATH: Final = 90
"""Bytes of the path of the folder of links: a Unix socket's has 107 at most."""
_FOLDER: Final = re.compile(r"worker-([0-9]+)")


class LinksFolder(NamedTuple):
    """Where workers are linked; `secret` is made anew for each start, and proves that one is a worker of it."""

    path: Path
    secret: str
    is_temporary: bool

    def socket_of(self, number: int) -> str:
        return str(self.path / f"{number}.sock")


def name_of(number: int) -> str:
    """As a folder, and in the log."""
    return f"worker-{number}"


def node_of(number: int) -> str:
    """As a node of the cluster that the workers are: of two, the one with the smaller id dials."""
    return f"worker-{number:02}"


def check_workers(config: Config) -> None:
    """Whether the settings go together, and with what is in the data folder. Raises ConfigError."""
    count = config.workers
    found = worker_folders(config.data_dir)
    if count == 1 and not found:
        return
    if count > 1:
        _check_together(config)
    if len(found) > count:
        others = "its sessions" if len(found) == count + 1 else "their sessions"
        raise ConfigError(
            f"{config.data_dir} is the data folder of {len(found)} workers, and workers is {count}: {others} would be "
            f"lost. Start with --workers {len(found)}, or move the folders from {name_of(count)} on elsewhere"
        )
    if count > 1 and config.data_dir and (Path(config.data_dir) / DESCRIPTION).exists():
        raise ConfigError(
            f"{config.data_dir} is the data folder of a broker without workers: make it the first worker's by moving "
            f"all that is in it to {Path(config.data_dir) / name_of(0)}, or name another folder"
        )


def _check_together(config: Config) -> None:
    if sys.platform != "linux":
        raise ConfigError("workers need Linux, which spreads connections to one port over processes: set workers = 1")
    check_cluster(config.cluster)
    if config.cluster.enabled:
        raise ConfigError(
            "workers and a cluster of several machines do not go together yet: set workers = 1, or leave cluster.name "
            "empty (docs/workers.md)"
        )
    if config.advice.enabled:
        raise ConfigError("workers and advice do not go together yet: set workers = 1, or advice.enabled = false")
    rest = config.rest
    if rest.enabled and rest.port and rest.port + config.workers > 65536:
        raise ConfigError(f"each worker has a port for REST, from rest.port = {rest.port} on, and there is none left")


def worker_folders(data_dir: str) -> list[int]:
    """The numbers of those that are there. Raises ConfigError if one is missing in between."""
    path = Path(data_dir)
    if not data_dir or not path.is_dir():
        return []
    found = sorted(int(match[1]) for each in path.iterdir() if (match := _FOLDER.fullmatch(each.name)))
    if found != list(range(len(found))):
        missing = next(number for number in range(len(found)) if number not in found)
        raise ConfigError(f"{path} has {name_of(found[-1])} and no {name_of(missing)}: bring that folder back")
    return found


def make_links_folder(data_dir: str) -> LinksFolder:
    """Raises StorageError."""
    secret = token_hex(16)
    if data_dir:
        make_folder(Path(data_dir))
        path = Path(data_dir) / LINKS
        if len(str(path.absolute()).encode()) <= LONGEST_PATH:
            make_folder(path)
            path.chmod(0o700)
            return LinksFolder(path.absolute(), secret, is_temporary=False)
    return LinksFolder(Path(tempfile.mkdtemp(prefix="headwater-")), secret, is_temporary=True)


def part_of(config: Config, number: int, links: LinksFolder) -> Config:
    """The settings of one worker: a node of a cluster of its own, over Unix sockets, with a part of the data. HTTP of
    all is the supervisor's, but REST, which is of one store; bridges are the first worker's."""
    # Of two, one dials: if both did, the second link would take the place of the first when clients are there already.
    others = [f"unix:{links.socket_of(each)}" for each in range(number + 1, config.workers)]
    cluster = ClusterSettings(
        name=CLUSTER,
        node=node_of(number),
        unix=links.socket_of(number),
        join=others,
        secret=SecretStr(links.secret),
        session_lost="wait",  # its data is here, and so is the worker soon
        **{name: getattr(config.cluster, name) for name in ("method", "subscribe_wait", "max_spool", "link_buffer")},
    )
    rest, store = config.rest, config.store
    update = {
        "workers": 1,
        "cluster": cluster,
        "data_dir": str(Path(config.data_dir) / name_of(number)) if config.data_dir else "",
        "admin": config.admin.model_copy(update={"enabled": False}),
        "forward": [_forward_of(each, number) for each in config.forward],
        "bridges": config.bridges if number == 0 else [],
        "rest": rest.model_copy(update={"port": rest.port + number if rest.port else 0}),
        "store": store.model_copy(update={"id": f"{store.id}-{number}" if store.id else "", "from_nodes": False}),
    }
    return config.model_copy(update=update)


def _forward_of(settings: ForwardSettings, number: int) -> ForwardSettings:
    """Each worker forwards its own store, under names of its own but for the first."""
    if number == 0:
        return settings
    names = ("name", "client_id", "dead_letters")
    found = {each: getattr(settings, each) for each in names}
    update = {each: f"{name}-{number}" for each, name in found.items() if name}
    return settings.model_copy(update=update)


def packed(config: Config) -> str:
    """With its secrets: for a process of our own, over a link that nobody else has."""
    return base64.b64encode(pickle.dumps(config)).decode()


def unpacked(settings: str) -> Config:
    found = pickle.loads(base64.b64decode(settings))
    assert isinstance(found, Config)
    return found
