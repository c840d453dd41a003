"""What a caller of REST shows: the header `Authorization`."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from headwater.store.rest.gate import Unauthorized

WHAT_TO_SHOW: Final = "say who you are: user name and password (Basic), or a token (Bearer), as for MQTT"

Credentials = tuple[str | None, bytes | None, bool]


def credentials_in(authorization: str | None) -> Credentials:
    """User, password or token, and whether it is a token. Raises Unauthorized."""
    if authorization is None:
        return None, None, False
    scheme, _, rest = authorization.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer" and rest:
        return None, rest.encode("latin-1", "replace"), True
    if scheme.lower() == "basic":
        try:
            user, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise Unauthorized("Authorization: malformed Basic credentials") from None
        if colon and "\0" not in user:
            return user, password.encode(), False
    raise Unauthorized(WHAT_TO_SHOW)
