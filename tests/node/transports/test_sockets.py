"""Settings of TCP sockets."""

import socket
import sys

import pytest

from headwater.node.transports.sockets import listen_tcp, send_at_once


def congestion_control(connection: socket.socket) -> bytes:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a socket choose")
def test_connections_of_this_machine_have_the_cheapest_congestion_control() -> None:
    listener = listen_tcp("127.0.0.1", 0)[0]
    with listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert congestion_control(accepted) == b"reno"
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a socket choose")
def test_others_have_what_the_system_says() -> None:
    with socket.socket() as plain, socket.socket() as far:
        send_at_once(far, loopback=False)
        assert congestion_control(far) == congestion_control(plain)
        assert far.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
