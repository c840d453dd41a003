"""What watches a pipeline while it runs: it is told of each round, serves figures and sends lineage."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.pipeline.jobs.pipeline import Round
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.monitoring.figures import Gathering
from headwater.pipeline.monitoring.lineage import Follower, Sender
from headwater.pipeline.monitoring.settings import Settings

if TYPE_CHECKING:
    from headwater.pipeline.monitoring.endpoint import Endpoint


log = logging.getLogger(__name__)


class MonitoringError(Exception):
    """The pipeline cannot be watched as asked; the text says why."""


class Monitor:
    """Use it as a context around the pipeline. Raises MonitoringError when it begins, never later."""

    def __init__(self, lake: Lake, settings: Settings, filters: tuple[str, ...] = ("#",)) -> None:
        self.settings = settings
        self.endpoint: Endpoint | None = None
        self._gathering = Gathering(lake)
        self._follower = Follower(lake, filters)
        self._sender: Sender | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Monitor:
        with contextlib.ExitStack() as stack:
            if self.settings.lineage is not None:
                self._sender = Sender(_receiver(self.settings))
                stack.callback(self._sender.stop)
            if self.settings.metrics is not None:
                self.endpoint = self._served(self.settings.metrics)
                stack.callback(self.endpoint.stop)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        if self._sender is not None and self._sender.is_idle:
            self._follower.note()

    def saw(self, found: Round) -> None:
        """By the pipeline's thread, after each round. What fails here is logged, and costs the pipeline nothing."""
        try:
            self._saw(found)
        except Exception as error:
            log.warning("monitoring: %s: %s", type(error).__name__, error)

    def _saw(self, found: Round) -> None:
        seen = None
        if self._sender is not None:
            for told in self._follower.new():
                self._sender.send(told)
            if self._sender.is_idle:  # else a pipeline that is killed now leaves nothing untold to the next one
                self._follower.note()
            seen = self._sender.seen(self._follower.missed)
        if self.endpoint is not None:
            self._gathering.saw(found, seen)

    def _served(self, address: str) -> Endpoint:
        try:
            from headwater.pipeline.monitoring.endpoint import Endpoint, MetricsError, address_of
        except ImportError as error:
            raise MonitoringError(f"metrics need {error.name}: pip install 'headwater[metrics]'") from None
        try:
            endpoint = Endpoint(
                lambda: self._gathering.seen,
                address_of(address),
                token=self.settings.metrics_token,
                late=self.settings.unhealthy_after,
            )
        except MetricsError as error:
            raise MonitoringError(str(error)) from None
        endpoint.start()
        return endpoint


def _receiver(settings: Settings) -> Callable[[Any], object]:
    """To whom events go. Raises MonitoringError."""
    try:
        from openlineage.client import OpenLineageClient
    except ImportError as error:
        raise MonitoringError(f"lineage needs {error.name}: pip install 'headwater[lineage]'") from None
    where = settings.lineage or ""
    transport: dict[str, Any]
    if where == "environment":
        return OpenLineageClient().emit
    if where.startswith("file://"):
        transport = {"type": "file", "log_file_path": where.removeprefix("file://"), "append": True}
    elif where.startswith(("http://", "https://")):
        transport = {"type": "http", "url": where, "timeout": 5.0}
        if settings.lineage_key is not None:
            transport["auth"] = {"type": "api_key", "apiKey": settings.lineage_key}
    else:
        raise MonitoringError(f"lineage is {where!r}; it has to be http://…, https://…, file:///… or environment")
    return OpenLineageClient(config={"transport": transport}).emit
