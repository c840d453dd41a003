"""The admin API of a broker, as commands ask it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from headwater.cli.failure import fail

PATIENCE: Final = 5.0


class AdminError(Exception):
    """It does not answer, or not as hoped for; the text says why."""


class Admin:
    def __init__(self, url: str, token: str) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def ask(self, path: str, method: str = "GET", patience: float = PATIENCE) -> Any:
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        try:
            request = Request(self._url + path, headers={"Authorization": f"Bearer {self._token}"}, method=method)
            with urlopen(request, timeout=patience) as answer:
                return json.load(answer)
        except HTTPError as error:
            hint = "; check --token-file" if error.code == 401 else _detail(error.read(10_000))
            error.close()
            raise AdminError(f"{self._url} answers {error.code} {error.reason}{hint}") from error
        except (URLError, TimeoutError, ValueError) as error:
            reason = getattr(error, "reason", error)
            text = getattr(reason, "strerror", None) or reason
            raise AdminError(f"cannot ask {self._url}: {text}; is the admin API there (admin.enabled)?") from error


def read_token(command: str, file: Path | None) -> str:
    if file is None:
        return os.environ.get("HEADWATER_ADMIN__TOKEN", "")
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError as error:
        fail(command, f"cannot read {file}: {error.strerror or error}")
    except UnicodeDecodeError:
        fail(command, f"{file} holds no token: it is not ASCII")


def _detail(body: bytes) -> str:
    """What the API says of an error."""
    try:
        return f": {json.loads(body)['detail']}"
    except (ValueError, KeyError, TypeError):
        return ""
