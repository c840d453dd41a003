from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headwater.pipeline.monitoring.endpoint import Endpoint, MetricsError, address_of
from headwater.pipeline.monitoring.figures import PipelineFigures, Seen


@contextmanager
def served(seen: Callable[[], Seen] = Seen, **how: object) -> Iterator[str]:
    endpoint = Endpoint(seen, ("127.0.0.1", 0), **how)
    endpoint.start()
    try:
        yield f"http://127.0.0.1:{endpoint.port}"
    finally:
        endpoint.stop()


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_figures_are_those_of_now() -> None:
    seen = [Seen(PipelineFigures(rounds=3))]
    with served(lambda: seen[-1]) as url:
        assert "headwater_pipeline_rounds_total 3.0" in get(f"{url}/metrics")[1]
        seen.append(Seen(PipelineFigures(rounds=4)))
        assert "headwater_pipeline_rounds_total 4.0" in get(f"{url}/metrics")[1]


def test_a_token_is_asked_for_by_figures_and_not_by_health() -> None:
    with served(token="secret") as url:
        assert get(f"{url}/metrics")[0] == 401
        assert get(f"{url}/metrics", Authorization="Bearer wrong")[0] == 401
        assert get(f"{url}/metrics", Authorization="Bearer secret")[0] == 200
        assert get(f"{url}/healthz") == (200, "ok\n")


def test_health_ends_when_no_round_does() -> None:
    now = [100.0]
    with served(lambda: Seen(PipelineFigures(round_time=150.0)), late=60.0, clock=lambda: now[0]) as url:
        now[0] = 209.0
        assert get(f"{url}/healthz")[0] == 200
        now[0] = 211.0
        assert get(f"{url}/healthz") == (503, "no round has ended for 61 s\n")


def test_a_pipeline_that_has_just_started_is_healthy() -> None:
    now = [100.0]
    with served(late=60.0, clock=lambda: now[0]) as url:
        now[0] = 159.0
        assert get(f"{url}/healthz")[0] == 200
        now[0] = 161.0
        assert get(f"{url}/healthz")[0] == 503


def test_there_is_nothing_else() -> None:
    with served() as url:
        assert get(f"{url}/")[0] == 404
        assert get(f"{url}/metrics", method="POST")[0] == 405


@pytest.mark.parametrize("text", ["9464", "localhost:", ":9464", "localhost:x", "localhost:70000", ""])
def test_addresses_that_cannot_be(text: str) -> None:
    with pytest.raises(MetricsError, match="HOST:PORT"):
        address_of(text)


def test_addresses() -> None:
    assert address_of("127.0.0.1:9464") == ("127.0.0.1", 9464)
    assert address_of("[::1]:0") == ("::1", 0)


def test_others_need_a_token() -> None:
    with pytest.raises(MetricsError, match="metrics_token"):
        Endpoint(Seen, ("0.0.0.0", 0))


def test_a_port_that_is_taken() -> None:
    with served() as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(MetricsError, match=rf"cannot serve metrics at 127\.0\.0\.1:{port}: "):
            Endpoint(Seen, ("127.0.0.1", port))
