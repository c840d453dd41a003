"""REST over a store as an ASGI application."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import BaseModel

from headwater import __version__
from headwater.store.rest import edge, erasing, errors, messages, readers, tail, topics
from headwater.store.rest.context import Context, Limits, caller_of
from headwater.store.rest.gate import Gate, Refused
from headwater.store.rest.others import Peers
from headwater.store.store import Store

DESCRIPTION: Final = """\
Every message that the node stores has a position: a number that grows by one. Where it leaves the store it is written
`id:number`. What a position holds never changes; the oldest are removed by retention.

Callers show who they are as MQTT clients do: user name and password (Basic), or a token (Bearer). They see what they
may subscribe to, and nothing of the rest, not even that it is there. Statistics and readers are for those who may
read everything.

Errors are `{"error": word, "detail": sentence}`. Parameters that are not known are refused.
"""
SCHEMES: Final = {
    "password": {"type": "http", "scheme": "basic", "description": "User name and password, as for MQTT."},
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token (JWT), as for MQTT, or that of `rest.token`.",
    },
}
OPEN: Final = ("/health", "/ready")


class Health(BaseModel):
    status: str


def make_app(store: Store, gate: Gate, limits: Limits | None = None, peers: Peers | None = None) -> FastAPI:
    app = FastAPI(
        title="Headwater",
        version=__version__,
        description=DESCRIPTION,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # the usual pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # an empty level of a topic counts
    )
    app.state.context = Context(store, gate, limits or Limits(), peers or Peers())
    errors.install(app)
    app.add_api_route("/health", health, methods=["GET"], tags=["health"])
    app.add_api_route("/ready", ready, methods=["GET"], tags=["health"], responses=errors.described(503))
    for path, endpoint in (("/health", health), ("/ready", ready)):
        app.add_api_route(path, endpoint, methods=["HEAD"], include_in_schema=False)
    version = APIRouter(prefix="/v1", dependencies=[Depends(caller_of)])  # first of all, who asks
    for part in (messages, erasing, tail, topics, readers, edge):
        version.include_router(part.routes)
    app.include_router(version)
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        return _with_schemes(describe())

    app.openapi = openapi  # type: ignore[method-assign]
    return app


async def health() -> Health:
    """The process is alive."""
    return Health(status="ok")


async def ready(request: Request) -> Health:
    """Clients are taken."""
    context: Context = request.app.state.context
    if not context.gate.is_ready() or context.threads.stopping:
        raise Refused(503, "unavailable", "clients are not taken now")
    return Health(status="ready")


def _with_schemes(description: dict[str, Any]) -> dict[str, Any]:
    """Which paths need to know who calls; FastAPI would also read the header, and refuse in its own words."""
    description["components"]["securitySchemes"] = SCHEMES
    for path, operations in description["paths"].items():
        if path not in OPEN:
            for operation in operations.values():
                operation["security"] = [{name: []} for name in SCHEMES]
    return description
