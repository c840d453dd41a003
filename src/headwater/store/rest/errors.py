"""Errors as answers: one shape, `{"error": word, "detail": sentence}`, whatever went wrong."""

from __future__ import annotations

import logging
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.store.rest.gate import Refused
from headwater.store.store import PositionGone, Store

log = logging.getLogger("headwater.rest")

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
"""[RFC 9457] Of answers that say which part is missing."""
WORDS: Final = {404: "not_found", 405: "method_not_allowed"}
CHALLENGE: Final = 'Basic realm="headwater", charset="UTF-8", Bearer realm="headwater"'


class Problem(BaseModel):
    """What went wrong."""

    error: str = Field(description="A word for programs.")
    detail: str = Field(description="A sentence for people: what is wrong, and where it helps, what to do.")


class GoneProblem(Problem):
    """Messages were asked for that retention has removed."""

    first: int = Field(description="The first position that is left.")
    next: int = Field(description="The position that the next message will have.")
    lost: int = Field(description="How many of the positions that were asked for are gone.")


def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for its description."""
    return {
        status: {"model": GoneProblem if status == 410 else Problem, "description": SAID[status]} for status in statuses
    }


SAID: Final = {
    400: "A cursor is malformed; says how it is written.",
    401: "It must be said, and shown, who asks.",
    403: "The caller may not do this.",
    404: "There is no such thing, or none that the caller may know of.",
    406: "None of the forms that `Accept` names can be had.",
    409: "It does not fit what the store holds.",
    410: "The range begins before what retention has left; says what is left.",
    413: "The payload is too large.",
    422: "A parameter is wrong; says which and why.",
    429: "As many as there may be, or too often.",
    503: "Not now: the node stops, its disk has failed, or too many come at once.",
}


def unprocessable(detail: str) -> Refused:
    return Refused(422, "unprocessable", detail)


def gone(error: PositionGone, store: Store) -> Refused:
    """What is left, for somebody who asked for more."""
    first = store.first
    return Refused(410, "gone", str(error), first=first, next=store.next, lost=max(0, first - error.asked))


def install(app: FastAPI) -> None:
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_middleware(Failures)


def answer(refused: Refused) -> Response:
    body = {"error": refused.error, "detail": refused.detail, **refused.more}
    headers = {"WWW-Authenticate": CHALLENGE} if refused.status == 401 else {}
    if refused.status in (429, 503):
        headers["Retry-After"] = "1"
    if "missing" not in refused.more:
        return Response(orjson.dumps(body), refused.status, headers, JSON)
    body |= {"type": "about:blank", "title": refused.error, "status": refused.status}
    return Response(orjson.dumps(body), refused.status, headers, PROBLEM)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return answer(error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    said = [f"{'.'.join(str(part) for part in each['loc'][1:])}: {each['msg']}" for each in error.errors()]
    return answer(unprocessable("; ".join(said)))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    word = WORDS.get(error.status_code, "refused")
    said = answer(Refused(error.status_code, word, str(error.detail)))
    said.headers.update(error.headers or {})
    return said


class Failures:
    """A failure of ours is logged; the caller is told that it is one, and no more. An answer that has begun is cut."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception:
            log.exception("a request failed")
            if not begun:
                await answer(Refused(500, "failed", "this failed; the node's log says why"))(scope, receive, send)
