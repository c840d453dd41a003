"""The admin API's token, as the settings name it."""

from __future__ import annotations

from pathlib import Path

from headwater.node.config import SHORTEST_TOKEN, Admin
from headwater.node.settings import ConfigError


def read_token(settings: Admin) -> str:
    """Raises ConfigError."""
    token = settings.token.get_secret_value()
    if token:
        return token
    try:
        token = Path(settings.token_file).read_text(encoding="ascii").strip()
    except OSError as error:
        raise ConfigError(f"cannot read admin.token_file {settings.token_file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"admin.token_file {settings.token_file} does not hold ASCII text") from error
    if len(token) < SHORTEST_TOKEN or not token.isprintable():
        raise ConfigError(
            f"admin.token_file {settings.token_file} must hold one line of at least {SHORTEST_TOKEN} characters, "
            "such as `openssl rand -hex 32` prints"
        )
    return token
