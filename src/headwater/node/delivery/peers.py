"""REST's way to the other nodes of the edge: which there are, and what this node shows them.

Who is a member has been let in by the cluster. Its secret or its certificates say so; a cluster without either lets in
whoever reaches it, so nothing is shown to its members. And what this node's own callers show it under TLS is shown to
nobody without.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from headwater.node.config import Config
from headwater.node.delivery.listening import read_peer_token
from headwater.node.delivery.rest_settings import RestSettings
from headwater.store.directory import Place
from headwater.store.rest.gate import Refused
from headwater.store.rest.others import TIMEOUT, Peers


def peer_token_of(config: Config) -> str:
    """What may be shown to members; empty: nothing. Raises ConfigError."""
    cluster = config.cluster
    is_closed = bool(cluster.secret.get_secret_value() or cluster.secret_file or cluster.tls is not None)
    return read_peer_token(config.rest) if is_closed else ""


class Members(Peers):
    def __init__(self, settings: RestSettings, token: str) -> None:
        self._token = token
        self._ca = settings.peer_ca or None
        self._secure = bool(settings.certificate)

    def client(self, place: Place) -> Any:
        from headwater.store.reader import StoreReader

        token = self._token or None
        if token is not None and self._secure and urlsplit(place.url).scheme != "https":
            raise Refused(503, "unavailable", f"{place.url} has no TLS; give that node a certificate, too")
        return StoreReader(place.url, token=token, retries=0, timeout=TIMEOUT, ca=self._ca)
