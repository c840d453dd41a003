"""Who may use the admin API: whoever shows the token. Nothing of a request but its head is looked at before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from fastapi import Response
from fastapi.security import HTTPBearer
from starlette.types import ASGIApp, Receive, Scope, Send

from headwater.node.admin.secret import Secret, read_token
from headwater.node.config import Admin

scheme = HTTPBearer(auto_error=False, description="The token of the setting `admin.token` or `admin.token_file`.")
OPEN: Final = ("/healthz", "/readyz")
DESCRIPTION: Final = "/openapi.json"
METRICS: Final = "/metrics"
REFUSAL: Final = b'{"detail":"a token is needed"}'


class TokenGuard(ABC):
    @abstractmethod
    def accepts(self, token: str) -> bool: ...

    @abstractmethod
    def has_open_metrics(self) -> bool: ...

    def admits(self, scope: Scope) -> bool:
        path = scope["path"]
        if path in OPEN or path == DESCRIPTION or (path == METRICS and self.has_open_metrics()):
            return True
        for name, value in scope["headers"]:
            if name == b"authorization":
                kind, _, token = value.decode("latin-1").partition(" ")
                return kind.lower() == "bearer" and self.accepts(token.strip())
        return False


class FixedToken(TokenGuard):
    """The one that the settings name. Raises ConfigError."""

    def __init__(self, settings: Admin) -> None:
        self._secret = Secret(read_token(settings))
        self._open_metrics = settings.open_metrics

    def accepts(self, token: str) -> bool:
        return self._secret.is_shown_by(token)

    def has_open_metrics(self) -> bool:
        return self._open_metrics


class TokenFirst:
    """Answers 401 before a body is read, to say nothing of parsing it."""

    def __init__(self, app: ASGIApp, guard: TokenGuard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._guard.admits(scope):
            headers = {"WWW-Authenticate": "Bearer"}
            await Response(REFUSAL, 401, headers, "application/json")(scope, receive, send)
            return
        await self._app(scope, receive, send)
