"""CBOR as a document. cbor2 (6 or newer) reads it, and is imported when a rule asks for it.

Tags say how something is meant; a document of a table needs what is there. So a tagged date stays the text or number
that it is, and so does whatever has another tag. Numbers are the exception: bignums and fractions become numbers.
References to something that was before (tags 25, 28, 29, 256) are refused: with them, a hundred bytes may stand for
gigabytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any, Final

from headwater.pipeline.decoding.json_text import DEEPEST
from headwater.pipeline.decoding.plain import NotPlain, plain

KNOWN_TAGS: Final = (*range(300), 1004, 43000)
"""Of which cbor2 would make objects."""
REFERENCES: Final = (25, 28, 29, 256)
SHORT: Final = 1 << 16
"""Bytes up to which keys may be other than text or bytes: of others, many can be found that fall on one place of a
table."""
GROWTH: Final = 4
"""How much larger than the payload a document may become; Base64 needs a third."""


class NotCbor(ValueError):
    """Says in words what is wrong with a payload."""


def parser() -> Callable[[bytes], Any]:
    """Raises ImportError where there is no cbor2."""
    import cbor2

    def parse(payload: bytes) -> Any:
        if not payload:
            raise NotCbor("is empty")
        source = io.BytesIO(payload)
        try:
            found = cbor2.load(
                source,
                tag_hook=_content,
                semantic_decoders=TAGS,
                max_depth=DEEPEST,
                allow_duplicate_keys=False,
                strict_hashable_types=len(payload) > SHORT,
            )
        except Exception as error:  # cbor2 lets through what its parts raise
            raise NotCbor(f"is no CBOR: {_said(error)}") from None
        if source.tell() != len(payload):
            raise NotCbor(f"has {len(payload) - source.tell()} bytes behind its end")
        if found is cbor2.undefined:
            raise NotCbor("is undefined")
        try:
            return plain(found, GROWTH * len(payload) + 64)
        except NotPlain as error:
            raise NotCbor(str(error)) from None

    return parse


def _said(error: BaseException) -> str:
    """cbor2 tells the cause by the exception's."""
    return str(error.__cause__ or error)


def _content(tag: Any, immutable: bool) -> Any:
    return tag.value


def _same(found: Any, immutable: bool) -> Any:
    return found


def _reference(found: Any, immutable: bool) -> Any:
    raise NotCbor("it has references, which are not followed")


def _bignum(found: Any, immutable: bool) -> Any:
    return int.from_bytes(found, "big") if isinstance(found, bytes) and len(found) <= 128 else found


def _negative_bignum(found: Any, immutable: bool) -> Any:
    number = _bignum(found, immutable)
    return -1 - number if isinstance(number, int) else found


def _fraction(base: int) -> Callable[[Any, bool], Any]:
    """Exponent and mantissa. The context bounds the work, whatever the exponent."""
    context = Context(prec=40)

    def number(found: Any, immutable: bool) -> Any:
        exponent, mantissa = found
        return float(context.multiply(Decimal(mantissa), context.power(Decimal(base), Decimal(exponent))))

    return number


TAGS: Final[Mapping[int, Callable[[Any, bool], Any]]] = {
    **dict.fromkeys(KNOWN_TAGS, _same),
    **dict.fromkeys(REFERENCES, _reference),
    2: _bignum,
    3: _negative_bignum,
    4: _fraction(10),
    5: _fraction(2),
}
