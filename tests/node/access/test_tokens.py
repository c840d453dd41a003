"""Tokens: keys of each kind, what is refused, and what a token says about its owner."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, HMACAlgorithm, RSAAlgorithm

from headwater.node.access.errors import AccessError
from headwater.node.access.rules import Rule
from headwater.node.access.settings import AccessSettings
from headwater.node.access.tokens import LONGEST_TOKEN, TokenError, Tokens, looks_like_token
from headwater.session.rights import PUBLISH, RECEIVE, SUBSCRIBE
from tests.node.access.arriving import SECRET, key_file

RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_RSA = rsa.generate_private_key(65537, 2048)


def pem(key: Any) -> str:
    return str(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())


LONG = 100_000.0
"""Seconds: tokens that are made when tests are collected must last until they are run."""


def claims(**others: Any) -> dict[str, Any]:
    return {"sub": "alice", "exp": time.time() + LONG, **others}


def token(key: Any = SECRET, algorithm: str = "HS256", headers: dict[str, Any] | None = None, **others: Any) -> bytes:
    said = {name: value for name, value in claims(**others).items() if value is not None}
    return jwt.encode(said, key, algorithm, headers).encode()


def tokens(folder: Path, key: str = SECRET, **settings: Any) -> Tokens:
    return Tokens(AccessSettings(jwt_key_file=key_file(folder, key), **settings))


def key_set() -> str:
    """A JWKS with a key of each kind."""
    keys = [
        {**RSAAlgorithm.to_jwk(RSA_KEY.public_key(), as_dict=True), "kid": "r"},
        {**ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True), "kid": "e"},
        {**HMACAlgorithm.to_jwk(SECRET.encode(), as_dict=True), "kid": "h"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AAAA", "kid": "unknown kind"},
        {**RSAAlgorithm.to_jwk(OTHER_RSA.public_key(), as_dict=True), "kid": "for encryption", "use": "enc"},
    ]
    return json.dumps({"keys": keys})


@pytest.mark.parametrize(
    ("key", "signer", "algorithm"),
    [(SECRET, SECRET, "HS256"), (pem(RSA_KEY), RSA_KEY, "RS256"), (pem(EC_KEY), EC_KEY, "ES256")],
    ids=["secret", "rsa", "ec"],
)
def test_a_key_of_each_kind(key: str, signer: Any, algorithm: str, tmp_path: Path) -> None:
    found = tokens(tmp_path, key).verify(token(signer, algorithm, exp=time.time() + 100))
    assert found.username == "alice" and found.rules is None
    assert found.seconds is not None and 90 < found.seconds <= 100


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("signer", "algorithm", "kid"), [(RSA_KEY, "RS256", "r"), (EC_KEY, "ES256", "e"), (SECRET, "HS256", "h")]
)
def test_a_key_set_has_the_right_one(signer: Any, algorithm: str, kid: str, named: bool, tmp_path: Path) -> None:
    headers = {"kid": kid} if named else None
    assert tokens(tmp_path, key_set()).verify(token(signer, algorithm, headers)).username == "alice"


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (token(exp=time.time() - 1), "it has expired"),
        (token(exp=None), "no claim 'exp'"),
        (token(nbf=time.time() + LONG / 2), "it is not valid yet"),
        (token(SECRET + "x"), "wrong signature"),
        (token(SECRET * 2, "HS512"), "no key for it"),
        (token(sub=None), "no claim 'sub'"),
        (token(sub=""), "no claim 'sub'"),
        (token(sub="a\0b"), "no claim 'sub'"),
        (token(aud="others"), "it is for another audience"),
        (token(key="", algorithm="none"), "no key for it"),
        (token()[:-20] + b"A" * 20, "wrong signature"),
        (b"eyJ.x.y", "not a token"),
        (b"x" * (LONGEST_TOKEN + 1), "too long"),
        (token(acl="all"), "rules"),
        (token(acl={"publish": "#"}), "rules"),
        (token(acl={"publish": ["a/#/b"]}), "rules"),
        (token(acl={"publish": [5]}), "rules"),
        (token(acl={"write": ["a"]}), "rules"),
        (token(acl={"publish": ["a"] * 1001}), "rules"),
    ],
    ids=range(19),
)
def test_what_is_refused(made: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(TokenError) as caught:
        tokens(tmp_path).verify(made)
    assert why in str(caught.value)
    assert made.decode() not in str(caught.value)


def test_a_public_key_is_never_a_secret(tmp_path: Path) -> None:
    """The old trick: a token signed with the text of the public key, as if it were an HMAC secret."""
    public = pem(RSA_KEY)
    header = token(algorithm="HS256").split(b".")[0]
    body = token().split(b".")[1]
    import base64
    import hashlib
    import hmac

    signature = hmac.new(public.encode(), header + b"." + body, hashlib.sha256).digest()
    forged = header + b"." + body + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")
    with pytest.raises(TokenError, match="no key for it"):
        tokens(tmp_path, public).verify(forged)


def test_audience_and_issuer_must_fit(tmp_path: Path) -> None:
    strict = tokens(tmp_path, jwt_audience="broker", jwt_issuer="us")
    assert strict.verify(token(aud=["broker", "other"], iss="us")).username == "alice"
    for wrong in (token(aud="broker", iss="them"), token(iss="us"), token(aud="other", iss="us"), token(aud="broker")):
        with pytest.raises(TokenError):
            strict.verify(wrong)


def test_clocks_may_differ_by_the_leeway(tmp_path: Path) -> None:
    found = tokens(tmp_path, jwt_leeway=30).verify(token(exp=time.time() - 10))
    assert found.seconds is not None and 15 < found.seconds <= 20


def test_who_and_what_is_in_claims_of_any_name(tmp_path: Path) -> None:
    named = tokens(tmp_path, jwt_username_claim="name", jwt_acl_claim="may", jwt_require_expiry=False)
    found = named.verify(token(name="bob", exp=None, may={"publish": ["p/%c"], "subscribe": ["s/#"]}))
    expected = (Rule("p/%c", PUBLISH, False, True), Rule("s/#", SUBSCRIBE | RECEIVE, False, True))
    assert found == ("bob", None, expected, None)
    apart = named.verify(token(name="bob", may={"subscribe": ["#"], "receive": ["r"]}))
    assert apart.rules == (Rule("#", SUBSCRIBE, False, True), Rule("r", RECEIVE, False, True))


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("short", "shorter than 32 bytes"),
        ("-----BEGIN PUBLIC KEY-----\nx", "not a public key"),
        (pem(ed25519.Ed25519PrivateKey.generate()), "neither RSA nor"),
        ('{"keys": []}', "no key in"),
        ('{"keys": [{"kty": "RSA"}]}', "not a JSON Web Key Set"),
        ('{"keys": 5}', "not a JSON Web Key Set"),
        ('{"keys": [{"kty": "oct", "k": "AAAA"}]}', "shorter than 32 bytes"),
    ],
)
def test_keys_that_cannot_be_used(key: str, part: str, tmp_path: Path) -> None:
    with pytest.raises(AccessError) as caught:
        tokens(tmp_path, key)
    assert part in str(caught.value)


def test_a_key_that_fits_no_algorithm(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="can be used with RS256"):
        tokens(tmp_path, jwt_algorithms=["RS256"])


def test_a_secret_is_as_long_as_the_hash(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="can be used with HS512"):
        tokens(tmp_path, jwt_algorithms=["HS512"])
    found = tokens(tmp_path, SECRET * 2, jwt_algorithms=["HS512"]).verify(token(SECRET * 2, "HS512"))
    assert found.username == "alice"


def test_an_elliptic_curve_has_one_algorithm(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="can be used with ES384"):
        tokens(tmp_path, pem(EC_KEY), jwt_algorithms=["ES384"])


def test_passwords_are_not_taken_for_tokens() -> None:
    assert looks_like_token(token())
    assert not any(looks_like_token(each) for each in (b"", b"secret", b"a.b.c", b"eyJ", b"eyJ.a.b.c"))
