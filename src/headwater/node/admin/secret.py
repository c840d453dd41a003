"""Tokens of HTTP interfaces, as the settings name them, and how they are compared."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from headwater.node.config import SHORTEST_TOKEN, Admin
from headwater.node.settings import ConfigError


class Secret:
    """Compared by its hash and in constant time: how long it takes tells nothing."""

    def __init__(self, text: str) -> None:
        self.digest = hash_of(text)

    def is_shown_by(self, text: str) -> bool:
        return hmac.compare_digest(hash_of(text), self.digest)


def hash_of(token: str) -> bytes:
    """32 bytes."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def read_token(settings: Admin) -> str:
    """The admin API's. Raises ConfigError."""
    return settings.token.get_secret_value() or read_token_file(settings.token_file, "admin.token_file")


def read_token_file(path: str, setting: str) -> str:
    """Raises ConfigError, which names the setting."""
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except OSError as error:
        raise ConfigError(f"cannot read {setting} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{setting} {path} does not hold ASCII text") from error
    if len(token) < SHORTEST_TOKEN or not token.isprintable():
        raise ConfigError(
            f"{setting} {path} must hold one line of at least {SHORTEST_TOKEN} characters, "
            "such as `openssl rand -hex 32` prints"
        )
    return token
