"""What a node shows to the REST of other nodes of its edge, and to whom it shows nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.node.config import Config
from headwater.node.delivery.peers import Members, peer_token_of
from headwater.node.delivery.rest_settings import RestSettings
from headwater.store.directory import Place
from headwater.store.rest.gate import Refused
from headwater.store.rest.others import TIMEOUT

PLACE = Place("b", "node-b", "http://b:8080", None)
SECRET = "a secret of the cluster that is long enough"


def config(**cluster: Any) -> Config:
    return Config(
        data_dir="x",
        store={"enabled": True},
        rest={"enabled": True, "peer_token": "shown to members"},
        cluster={"name": "demo", **cluster},
    )


def edge(token: str, **settings: Any) -> Members:
    return Members(RestSettings(**settings), token)


def test_members_of_an_open_cluster_are_shown_nothing() -> None:
    assert peer_token_of(config()) == ""
    assert peer_token_of(config(secret=SECRET)) == "shown to members"


def test_it_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file, long enough\n")
    (tmp_path / "token").chmod(0o600)
    with pytest.raises(ValueError, match="either `peer_token` or"):
        RestSettings(peer_token="x", peer_token_file="y")
    made = config(secret=SECRET).model_copy(update={"rest": RestSettings(peer_token_file=str(tmp_path / "token"))})
    assert peer_token_of(made) == "from a file, long enough"


def test_the_token_is_shown_to_the_other_node() -> None:
    client = edge("t", peer_ca="/ca.pem").client(PLACE)
    assert client._headers["Authorization"] == "Bearer t"
    assert (client._ca, client.retries, client.timeout) == ("/ca.pem", 0, TIMEOUT)
    assert "Authorization" not in edge("").client(PLACE)._headers


def test_it_is_not_shown_without_tls_by_a_node_that_has_it() -> None:
    secure = edge("t", certificate="c", key="k")
    with pytest.raises(Refused, match="no TLS"):
        secure.client(PLACE)
    assert secure.client(PLACE._replace(url="https://b:8080")).url == "https://b:8080"
