"""From the text of a condition to its words, signs, numbers and texts, each with its place.

One pass over at most `LONGEST` characters, no regular expressions: the time is linear in the length.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

from headwater.routing.conditions.errors import ConditionError, shown

LONGEST: Final = 1024
"""Characters of a condition."""
LONGEST_NUMBER: Final = 40
"""Characters of a number in a condition."""

WORD: Final = 1
NUMBER: Final = 2
TEXT: Final = 3
SIGN: Final = 4
END: Final = 5

SPACES: Final = " \t\r\n"
DIGITS: Final = "0123456789"
TWO: Final = ("<=", ">=", "!=", "<>", "==")
ONE: Final = "<>=()[],."


class Token:
    """`text`: what a word, sign or text says; `number`: the value of a number, an int or a float."""

    def __init__(self, kind: int, text: str, place: int, number: object = None) -> None:
        self.kind = kind
        self.text = text
        self.place = place
        self.number = number

    def shown(self) -> str:
        return "the end" if self.kind == END else shown(self.text)


def is_word(text: str) -> bool:
    """Whether the text may stand for a name as it is."""
    if not text or text[0] in DIGITS:
        return False
    return all(char == "_" or char.isalnum() for char in text)


def tokens_of(source: str) -> list[Token]:
    """The last one is END. Raises ConditionError."""
    if len(source) > LONGEST:
        raise ConditionError(f"longer than {LONGEST} characters", LONGEST + 1)
    found: list[Token] = []
    at = 0
    while at < len(source):
        char = source[at]
        if char in SPACES:
            at += 1
            continue
        if char in DIGITS or (char == "-" and source[at + 1 : at + 2] in DIGITS and at + 1 < len(source)):
            end = _number_end(source, at)
            found.append(_number(source[at:end], at + 1))
        elif char in "'\"":
            token, end = _quoted(source, at)
            found.append(token)
        elif char == "_" or char.isalnum():
            end = at + 1
            while end < len(source) and (source[end] == "_" or source[end].isalnum()):
                end += 1
            found.append(Token(WORD, source[at:end], at + 1))
        else:
            sign = source[at : at + 2] if source[at : at + 2] in TWO else char
            if len(sign) == 1 and sign not in ONE:
                raise ConditionError(f"unexpected {shown(sign)}", at + 1)
            end = at + len(sign)
            found.append(Token(SIGN, sign, at + 1))
        at = end
    found.append(Token(END, "", len(source) + 1))
    return found


def _digits_end(source: str, at: int) -> int:
    while at < len(source) and source[at] in DIGITS:
        at += 1
    return at


def _number_end(source: str, at: int) -> int:
    end = _digits_end(source, at + 1)
    if source[end : end + 1] == "." and _digits_end(source, end + 1) > end + 1:
        end = _digits_end(source, end + 1)
    if source[end : end + 1] in ("e", "E"):
        power = end + 1
        if source[power : power + 1] in ("+", "-"):
            power += 1
        if _digits_end(source, power) > power:
            end = _digits_end(source, power)
    return end


def _number(text: str, place: int) -> Token:
    if len(text) > LONGEST_NUMBER:
        raise ConditionError(f"a number longer than {LONGEST_NUMBER} characters", place)
    number = float(text)
    if not isfinite(number):
        raise ConditionError(f"a number that is too large: {shown(text)}", place)
    if "." not in text and "e" not in text and "E" not in text:
        return Token(NUMBER, text, place, int(text))
    return Token(NUMBER, text, place, number)


def _quoted(source: str, at: int) -> tuple[Token, int]:
    """A text between quotes of one kind, in which that quote is written twice; and where it ends."""
    quote = source[at]
    parts: list[str] = []
    begin = at + 1
    while True:
        end = source.find(quote, begin)
        if end < 0:
            raise ConditionError("a text without its closing quote", at + 1)
        parts.append(source[begin:end])
        if source[end + 1 : end + 2] != quote:
            return Token(TEXT, "".join(parts), at + 1), end + 1
        parts.append(quote)
        begin = end + 2
