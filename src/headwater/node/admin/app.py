"""The admin API as an ASGI application: health and metrics here, all else in `routes`."""

from __future__ import annotations

from typing import Final

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater import __version__
from headwater.node.admin.cluster import cluster_routes
from headwater.node.admin.edge import edge_routes
from headwater.node.admin.figures import Figures
from headwater.node.admin.hand_over import hand_over_routes
from headwater.node.admin.reach import BrokerStopped, Reach
from headwater.node.admin.routes import routes
from headwater.node.admin.token import TokenFirst, TokenGuard, scheme

LARGEST_BODY: Final = 1 << 20


class Health(BaseModel):
    status: str
    reason: str | None = None


def make_app(reach: Reach, guard: TokenGuard) -> FastAPI:
    app = FastAPI(
        title="Headwater admin API",
        version=__version__,
        description="For those who run a broker. Show the token as `Authorization: Bearer …`.",
        docs_url=None,  # the usual pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.reach = reach
    app.state.figures = Figures(reach)
    app.add_exception_handler(BrokerStopped, _stopped)
    app.add_api_route("/healthz", healthz, methods=["GET"], tags=["health"], response_model_exclude_none=True)
    app.add_api_route(
        "/readyz",
        readyz,
        methods=["GET"],
        tags=["health"],
        response_model_exclude_none=True,
        responses={503: {"description": "Not (yet, or any more); `reason` says why."}},
    )
    app.add_api_route(
        "/metrics",
        metrics,
        methods=["GET"],
        tags=["metrics"],
        dependencies=[Depends(scheme)],
        response_class=Response,
        responses={401: {"description": "The token is missing or wrong."}},
    )
    app.include_router(routes)
    app.include_router(cluster_routes)
    app.include_router(edge_routes)
    app.include_router(hand_over_routes)
    app.add_middleware(BoundedBody)
    app.add_middleware(TokenFirst, guard=guard)  # the last one added is the first one asked
    return app


async def _stopped(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": "the broker has stopped"}, 503)


async def healthz() -> Health:
    """The process is alive."""
    return Health(status="ok")


async def readyz(request: Request, response: Response) -> Health:
    """Clients are taken."""
    reach: Reach = request.app.state.reach
    if reach.is_ready():
        return Health(status="ready")
    response.status_code = 503
    try:
        reason = await reach.ask("why_not_ready")
    except BrokerStopped:
        reason = "the broker has stopped"
    return Health(status="not ready", reason=reason or None)


async def metrics(request: Request) -> Response:
    """Figures for Prometheus."""
    return Response(await request.app.state.figures.text(), media_type=CONTENT_TYPE_LATEST)


class BoundedBody:
    """Answers 413 to requests with more than a megabyte."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > LARGEST_BODY:
                await Response("the request is too large", 413)(scope, receive, send)
                return
        size = 0

        async def bounded() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > LARGEST_BODY:  # it came without its length
                return {"type": "http.disconnect"}
            return message

        await self._app(scope, bounded, send)
