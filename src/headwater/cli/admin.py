"""The admin API of a broker, as commands ask it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from headwater.cli.failure import fail

PATIENCE: Final = 5.0
ENABLE: Final = (
    "is the admin API there? A broker has one with --set admin.enabled=true and a token, HEADWATER_ADMIN__TOKEN in its "
    "environment say (docs/operations.md); --admin is where"
)


class AdminError(Exception):
    """It does not answer (`status` is None), or not as hoped for; the text says why, `detail` what it says itself."""

    def __init__(self, text: str, status: int | None = None, detail: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.detail = detail


class Admin:
    def __init__(self, url: str, token: str) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def ask(self, path: str, method: str = "GET", patience: float = PATIENCE, body: Any = None) -> Any:
        """What it answers, as JSON; None: nothing. Raises AdminError."""
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(self._url + path, data, headers, method=method), timeout=patience) as answer:
                said = answer.read()
                return json.loads(said) if said else None
        except HTTPError as error:
            detail = "" if error.code == 401 else _detail(error.read(10_000))
            hint = "; check --token-file" if error.code == 401 else f": {detail}" if detail else ""
            error.close()
            raise AdminError(f"{self._url} answers {error.code} {error.reason}{hint}", error.code, detail) from error
        except (URLError, TimeoutError, ValueError) as error:
            reason = getattr(error, "reason", error)
            text = getattr(reason, "strerror", None) or reason
            raise AdminError(f"cannot ask {self._url}: {text}; {ENABLE}") from error


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
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return ""
