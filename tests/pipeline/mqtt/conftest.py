from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers import running

UNBOUNDED = "allow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0"


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a broker in a process of its own: ours, or the one that a test asks for."""
    with running(getattr(request, "param", "headwater"), tmp_path_factory.mktemp("broker"), UNBOUNDED) as port:
        yield port
