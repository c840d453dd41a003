"""Who may use the admin API: whoever shows the token."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from headwater.node.admin.secret import Secret, read_token
from headwater.node.config import Admin

scheme = HTTPBearer(auto_error=False, description="The token of the setting `admin.token` or `admin.token_file`.")


class TokenGuard:
    def __init__(self, settings: Admin) -> None:
        self.use(settings)

    def use(self, settings: Admin) -> None:
        """From now on this token counts; raises ConfigError, and then the old one does."""
        self._secret = Secret(read_token(settings))
        self.open_metrics = settings.open_metrics

    def accepts(self, token: str) -> bool:
        return self._secret.is_shown_by(token)


Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(scheme)]


async def require_token(request: Request, credentials: Credentials) -> None:
    guard: TokenGuard = request.app.state.guard
    if credentials is None or not guard.accepts(credentials.credentials):
        raise HTTPException(401, "a token is needed", {"WWW-Authenticate": "Bearer"})


async def require_token_for_metrics(request: Request, credentials: Credentials) -> None:
    guard: TokenGuard = request.app.state.guard
    if not guard.open_metrics:
        await require_token(request, credentials)
