"""What is wrong with a file that says who may do what."""

from __future__ import annotations

from pathlib import Path

from headwater.node.settings import ConfigError


class AccessError(ConfigError):
    """A file of users, keys or rules cannot be used; the text says what to change, and holds no secret."""


def read_text(path: str, what: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise AccessError(f"cannot read the {what} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise AccessError(f"the {what} {path} is not UTF-8 text") from error
