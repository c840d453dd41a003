"""Addresses of Sparks: which are none, and where nobody answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from headwater.pipeline.masters import NoMaster, check_master
from headwater.pipeline.session import NoSpark, make_session


@pytest.fixture
def open_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]"])
def test_this_machine_needs_nobody(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize(
    "master", ["", "nonsense", "local[x]", "spark://", "yarn://a:1", "spark://a:b:c", "sc://a:123456", "http://a:1"]
)
def test_what_is_no_address(master: str) -> None:
    with pytest.raises(NoMaster, match=r"is no address of a Spark; write local\[2\], spark://host:7077, "):
        check_master(master)


@pytest.mark.parametrize("address", ["spark://127.0.0.1:{}", "sc://127.0.0.1:{}/;user_id=me", "sc://127.0.0.1:{};x=y"])
def test_where_somebody_answers(address: str, open_port: int) -> None:
    check_master(address.format(open_port))


def test_one_of_several_masters_is_enough(open_port: int, closed_port: int) -> None:
    check_master(f"spark://127.0.0.1:{closed_port},127.0.0.1:{open_port}")


@pytest.mark.parametrize("kind", ["spark", "sc"])
def test_where_nobody_answers(kind: str, closed_port: int) -> None:
    master = f"{kind}://127.0.0.1:{closed_port}"
    with pytest.raises(
        NoMaster, match=rf"nobody answers at {master} \(127.0.0.1:{closed_port}: .*refused.*\): is Spark"
    ):
        check_master(master)


@pytest.mark.parametrize("master", ["nonsense", "sc://127.0.0.1:{}", "spark://127.0.0.1:{}"])
def test_a_session_says_so_at_once(master: str, closed_port: int) -> None:
    with pytest.raises(NoSpark, match=r"is no address|nobody answers"):
        make_session(master.format(closed_port))
