"""Whether the settings of a cluster go together, beyond what they say by themselves (settings.py): what a start needs.

Every broker asks this at its start, run by the command line or embedded, and so does `headwater config check`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from headwater.node.links.settings import PORT, ClusterSettings
from headwater.node.settings import ConfigError
from headwater.node.transports.sockets import EVERYWHERE, address_text, is_loopback
from headwater.peering.membership.seeds import parse_seed


def check_cluster(cluster: ClusterSettings) -> None:
    """Whether the settings of a cluster go together. Raises ConfigError, a line for each that does not."""
    wrong = list(_wrong_with(cluster))
    if wrong:
        raise ConfigError("\n".join(wrong))


def _wrong_with(cluster: ClusterSettings) -> Iterator[str]:
    if not cluster.enabled:
        for name in ("join", "join_file", "neighbours"):
            if getattr(cluster, name):
                yield f"cluster.{name} needs a cluster: name it with --cluster NAME (cluster.name)"
        return
    if cluster.advertise:
        try:
            parse_seed(cluster.advertise, PORT)
        except ValueError as error:
            yield f"cluster.advertise: {error}"
    if cluster.tls is not None and cluster.tls.identity != "none" and not cluster.node:
        yield (
            "cluster.node is not set, and has to be the name in this node's certificate: set it (--node NAME), or set "
            'cluster.tls.identity = "none"'
        )
    has_secret = cluster.secret.get_secret_value() or cluster.secret_file
    if cluster.tls is None and not has_secret and _reaches_out(cluster):
        where = address_text(cluster.host, cluster.port)
        yield (
            f"anybody who reaches {where} (cluster.host, cluster.port) could join the cluster: set cluster.secret_file "
            "(`openssl rand -hex 32` makes a secret) or [cluster.tls], or listen on loopback"
        )


def _reaches_out(cluster: ClusterSettings) -> bool:
    """Whether other machines may connect to this node, as nodes."""
    if cluster.unix or cluster.host == "localhost" or is_loopback(cluster.host):
        return False
    if cluster.host == EVERYWHERE:
        return True
    try:
        found = socket.getaddrinfo(cluster.host, cluster.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a name that nobody knows: listening says so
        return True
    return not all(is_loopback(str(address[0])) for _, _, _, _, address in found)
