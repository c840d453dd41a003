"""What decides how a store is reached: options by name, as deltalake's `storage_options` have them.

Options are what somebody gave, such as `AWS_ENDPOINT_URL` or `aws_region`; the case does not matter. What is not given
is taken from the environment by the libraries that reach the store, on each machine from its own. So a secret in the
environment stays there; one that is given goes to executors with the options, and is never shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from headwater.objects.place import PlaceError

SCHEMES: Final = {
    "s3": "aws",
    "s3a": "aws",
    "abfss": "azure",
    "abfs": "azure",
    "az": "azure",
    "gs": "google",
    "memory": "",
}
"""Of URLs, and with what the names of their options begin."""
NO_STORE: Final = {
    "hdfs": "nobody has tested a lake on HDFS, whose servers come from no package index; mount it as a folder (its NFS "
    "gateway or FUSE)",
}
CLIENT: Final = ("allow_http", "allow_invalid_certificates", "connect_timeout", "timeout", "proxy_url", "user_agent")
"""Options of the connection, for every store."""
RETRIES: Final = ("max_retries", "retry_timeout")
LIMITS: Final = {"connect_timeout": "5s", "timeout": "30s", "max_retries": "10", "retry_timeout": "60s"}
"""Unless others are given: a store that is away is found out in a minute."""
SECRET: Final = re.compile(r"secret|password|token|key|sas|credential|signature", re.IGNORECASE)
SHOWN: Final = 400
"""Characters of what a store said, at most."""
UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Reach:
    """Options, sorted by who wants them. Raises PlaceError."""

    def __init__(self, scheme: str, given: Mapping[str, str] | None = None) -> None:
        prefix = SCHEMES[scheme]
        self.given = dict(given or {})
        self.store: dict[str, Any] = {}
        self.client: dict[str, Any] = {}
        self.retries: dict[str, str] = {name: LIMITS[name] for name in RETRIES}
        for name in ("connect_timeout", "timeout"):
            self.client[name] = LIMITS[name]
        for name, value in self.given.items():
            lower = name.lower()
            bare = lower.removeprefix(f"{prefix}_")
            if not self._take(name, bare, value):
                self.store[lower] = value
        for bare in (*CLIENT, *RETRIES):  # which the library looks for only if it is given none
            name = f"{prefix}_{bare}".upper()
            if name in os.environ and bare not in {each.lower().removeprefix(f"{prefix}_") for each in self.given}:
                self._take(name, bare, os.environ[name])

    def _take(self, name: str, bare: str, value: str) -> bool:
        """Whether it is for every store."""
        if bare in CLIENT:
            self.client[bare] = _client_value(name, bare, value)
        elif bare in RETRIES:
            self.retries[bare] = value
        return bare in CLIENT or bare in RETRIES

    @property
    def most_retries(self) -> int:
        value = self.retries["max_retries"]
        if not value.isdecimal():
            raise PlaceError(f"the option max_retries is a whole number, not {value!r}")
        return int(value)

    @property
    def retry_seconds(self) -> float:
        return seconds("retry_timeout", self.retries["retry_timeout"])

    def for_delta(self) -> dict[str, str]:
        """As deltalake takes them."""
        plain = {**LIMITS, **self.given}
        return {name: str(value) for name, value in plain.items()}

    def secrets(self) -> list[str]:
        return [value for name, value in self.given.items() if SECRET.search(name) and len(value) > 3]


def scheme_of(url: str) -> str | None:
    """None: it is a folder. Raises PlaceError if it is neither that nor of a store that we know."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", url)
    scheme = found[1].lower() if found else "file"
    if scheme == "file":
        return None
    if scheme in NO_STORE:
        raise PlaceError(f"{scheme}:// is not supported: {NO_STORE[scheme]}")
    if scheme not in SCHEMES:
        raise PlaceError(f"{scheme}:// is not supported: use a folder, {', '.join(f'{each}://' for each in SCHEMES)}")
    if "@" in url and SCHEMES[scheme] != "azure":
        raise PlaceError(f"credentials do not belong into the URL of {scheme}://: give them as options or environment")
    return scheme


def seconds(name: str, text: str) -> float:
    """Of `30s`, `500ms`, `2m`. Raises PlaceError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if found is None:
        raise PlaceError(f"the option {name} is a time such as 30s, not {text!r}")
    return float(found[1]) * UNITS[found[2]]


def without_secrets(text: str, reach: Reach) -> str:
    """The first lines of what a store said: signatures of URLs and values that are secret do not go into logs."""
    short = re.sub(r"(https?://[^\s?]*)\?[^\s)>\"']*", r"\1?…", text.partition("\nDebug source")[0].strip())
    for each in reach.secrets():
        short = short.replace(each, "…")
    return " ".join(short.split())[:SHOWN]


def _client_value(name: str, bare: str, value: str) -> Any:
    if bare.startswith("allow"):
        if value.lower() not in ("true", "false", "1", "0"):
            raise PlaceError(f"the option {name} is true or false, not {value!r}")
        return value.lower() in ("true", "1")
    if bare.endswith("timeout"):
        seconds(name, value)
    return value
