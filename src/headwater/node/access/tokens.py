"""JSON Web Tokens in the password field: whose they are, until when, and what they let do.

The kind of a key says which algorithms it may be used with, and the settings which of these are wanted; what a token's
header asks for counts only within that, so that nobody can have a public key used as a secret.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.node.access.errors import AccessError, read_text
from headwater.node.access.rules import Rule
from headwater.node.access.settings import AccessSettings
from headwater.routing.topics import ANY_LEVELS, InvalidTopicFilter, check_filter
from headwater.session.rights import PUBLISH, RECEIVE, SUBSCRIBE

if TYPE_CHECKING:
    from jwt import PyJWK

SHORTEST_SECRET: Final = 32
LONGEST_TOKEN: Final = 16384
MOST_FILTERS: Final = 1000
KINDS: Final[dict[str, tuple[str, ...]]] = {"oct": ("HS",), "RSA": ("RS", "PS"), "EC": ("ES",)}

WORDS: Final = {
    "ExpiredSignatureError": "it has expired (exp)",
    "ImmatureSignatureError": "it is not valid yet (nbf, iat)",
    "InvalidAudienceError": "it is for another audience (aud, jwt_audience)",
    "InvalidIssuerError": "it is of another issuer (iss, jwt_issuer)",
}
"""What PyJWT finds wrong, by the names of its exceptions."""


class TokenError(Exception):
    """A token that is not accepted. The text is for our log and holds nothing of the token."""


class Identity(NamedTuple):
    username: str | None
    seconds: float | None = None
    """How much longer it is valid; None: for ever."""
    rules: tuple[Rule, ...] | None = None
    """What the token itself lets do, with patterns; None: it says nothing about that."""
    encoded: str | None = None
    """The hash that its password was verified against; None: it came in otherwise."""


class _Key(NamedTuple):
    id: str | None
    key: Any
    algorithms: list[str]


class Tokens:
    def __init__(self, settings: AccessSettings) -> None:
        """Read the keys; AccessError if there is none that can be used."""
        self.settings = settings
        self.keys = _read_keys(settings.jwt_key_file, settings.jwt_algorithms)

    def verify(self, token: bytes) -> Identity:
        """Whose token it is; TokenError if it is wrong, too old, too new or meant for others."""
        import jwt

        if len(token) > LONGEST_TOKEN:
            raise TokenError("too long")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise TokenError("not a token") from error
        failed = "no key for it"
        named = header.get("kid")
        for key in self.keys:
            if header.get("alg") not in key.algorithms or (named and key.id and named != key.id):
                continue
            try:
                return self._identity(self._claims(token, key))
            except jwt.InvalidSignatureError:
                failed = "wrong signature"
            except jwt.MissingRequiredClaimError as error:
                raise TokenError(f"no claim {error.claim!r}") from error
            except jwt.PyJWTError as error:
                name = type(error).__name__
                raise TokenError(WORDS.get(name, name)) from error
        raise TokenError(failed)

    def _claims(self, token: bytes, key: _Key) -> dict[str, Any]:
        import jwt

        settings = self.settings
        required = ["exp"] if settings.jwt_require_expiry else []
        return jwt.decode(
            token,
            key.key,
            algorithms=key.algorithms,
            audience=settings.jwt_audience or None,
            issuer=settings.jwt_issuer or None,
            leeway=settings.jwt_leeway,
            options={"require": required},
        )

    def _identity(self, claims: dict[str, Any]) -> Identity:
        name = claims.get(self.settings.jwt_username_claim)
        if not isinstance(name, str) or not name or "\0" in name:
            raise TokenError(f"no claim {self.settings.jwt_username_claim!r} that could be a user name")
        expires = claims.get("exp")
        rules = None
        if self.settings.jwt_acl_claim in claims:
            rules = tuple(_rules(claims[self.settings.jwt_acl_claim]))
        # Tokens speak of the time of day, which is looked at here, once; from here on the broker's own clock counts.
        seconds = None if expires is None else max(0.0, float(expires) + self.settings.jwt_leeway - time.time())
        return Identity(name, seconds, rules)


def looks_like_token(password: bytes) -> bool:
    """Three parts of base64url, the first one a JSON object's: passwords do not look like that by chance."""
    return password.startswith(b"eyJ") and password.count(b".") == 2


def _rules(claim: Any) -> list[Rule]:
    """`{"publish": […], "subscribe": […], "receive": […]}`; who may subscribe may receive unless `receive` is given."""
    if not isinstance(claim, dict) or claim.keys() - {"publish", "subscribe", "receive"}:
        raise TokenError("its rules are not understood")
    subscribe = SUBSCRIBE if "receive" in claim else SUBSCRIBE | RECEIVE
    rules = []
    for word, actions in (("publish", PUBLISH), ("subscribe", subscribe), ("receive", RECEIVE)):
        filters = claim.get(word, [])
        if not isinstance(filters, list) or len(filters) > MOST_FILTERS:
            raise TokenError("its rules are not lists of filters")
        for filter in filters:
            try:
                check_filter(filter if isinstance(filter, str) else "", ANY_LEVELS)
            except InvalidTopicFilter as error:
                raise TokenError("one of its rules is not a topic filter") from error
            rules.append(Rule(filter, actions, False, True))
    return rules


def _read_keys(path: str, wanted: list[str]) -> list[_Key]:
    text = read_text(path, "key file")
    if text.lstrip().startswith("{"):
        found = _key_set(text, path)
    elif "-----BEGIN" in text:
        found = [_pem(text, path)]
    else:
        secret = text.strip().encode()
        if len(secret) < SHORTEST_SECRET:
            raise AccessError(f"the secret in {path} is shorter than {SHORTEST_SECRET} bytes")
        found = [(None, secret, "oct", "")]
    keys = []
    for identifier, key, kind, curve in found:
        algorithms = [name for name in wanted if name.startswith(KINDS.get(kind, ())) and _fits(name, key, curve)]
        if algorithms:
            keys.append(_Key(identifier, key, algorithms))
    if not keys:
        raise AccessError(f"no key in {path} can be used with {', '.join(wanted)}")
    return keys


def _fits(algorithm: str, key: Any, curve: str) -> bool:
    """[RFC 7518, 3.2 and 3.4] A secret is as long as the hash; each ES algorithm has its own curve."""
    if isinstance(key, bytes):
        return len(key) * 8 >= int(algorithm[2:])
    return not curve or {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}.get(algorithm) == curve


def _key_set(text: str, path: str) -> list[tuple[str | None, Any, str, str]]:
    import jwt

    try:
        described = json.loads(text)
        keys = described.get("keys", [described])
        found: list[tuple[str | None, Any, str, str]] = []
        for each in keys:
            if each.get("kty") in KINDS and each.get("use", "sig") == "sig":
                key: PyJWK = jwt.PyJWK.from_dict(each, algorithm=each.get("alg") or _any_algorithm(each))
                if each["kty"] == "oct" and len(key.key) < SHORTEST_SECRET:
                    raise AccessError(f"a secret in {path} is shorter than {SHORTEST_SECRET} bytes")
                found.append((each.get("kid"), key.key, each["kty"], each.get("crv", "")))
    except (ValueError, KeyError, TypeError, AttributeError, jwt.PyJWTError) as error:
        raise AccessError(f"{path} is not a JSON Web Key Set that is understood") from error
    return found


def _any_algorithm(key: dict[str, Any]) -> str:
    curves = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
    return {"oct": "HS256", "RSA": "RS256"}.get(key["kty"]) or curves.get(key.get("crv", ""), "ES256")


def _pem(text: str, path: str) -> tuple[str | None, Any, str, str]:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(text.encode())
    except Exception as error:
        raise AccessError(
            f"{path} is not a public key in PEM form; `openssl pkey -in KEY -pubout` makes it from a private key, "
            "`openssl x509 -in CERTIFICATE -noout -pubkey` from a certificate"
        ) from error
    if isinstance(key, RSAPublicKey):
        return None, key, "RSA", ""
    if isinstance(key, EllipticCurvePublicKey):
        curves = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
        return None, key, "EC", curves.get(key.curve.name, "?")
    raise AccessError(f"the key in {path} is neither RSA nor of an elliptic curve")
