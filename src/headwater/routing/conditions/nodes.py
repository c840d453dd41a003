"""The tree that a condition is, which evaluates itself and writes itself in its normal form.

Operands have a value; tests have a truth (values.py). A tree has at most `MOST_TERMS` tests and is `DEEPEST` deep
(parser.py), a test looks at a few values, and a list of `in` is a set: so the time that a message takes is bounded by
the payload, which is taken apart once (reading.py).

Levels of a topic and user properties are texts. Where they meet a number they are read as one, if they are one.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from headwater.routing.conditions.kept import kept_value
from headwater.routing.conditions.reading import Reading
from headwater.routing.conditions.tokens import is_word
from headwater.routing.conditions.values import (
    A_NULL,
    A_NUMBER,
    A_TEXT,
    A_TRUTH,
    ABSENT,
    AT_LEAST,
    AT_MOST,
    FALSE,
    NO_VALUE,
    TRUE,
    UNKNOWN,
    compare,
    differs,
    kind_of,
    number_in,
    truth,
)

KEYWORDS: Final = frozenset(
    ("and", "or", "not", "in", "between", "exists", "changed", "limit", "per", "true", "false", "null")
)
ROOTS: Final = frozenset(("payload", "topic", "user"))

Step = str | int


# ---- operands --------------------------------------------------------------------------------------------------


@mypyc_attr(allow_interpreted_subclasses=True)
class Operand:
    is_loose = False
    """A text that may be meant as a number."""

    def value(self, reading: Reading) -> object:
        raise NotImplementedError

    def text(self) -> str:
        raise NotImplementedError


class Literal(Operand):
    def __init__(self, content: object) -> None:
        self.content = content

    def value(self, reading: Reading) -> object:
        return self.content

    def text(self) -> str:
        return literal_text(self.content)


class Field(Operand):
    """A place in the payload."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps

    def value(self, reading: Reading) -> object:
        found = reading.document()
        for step in self.steps:
            if isinstance(step, str):
                if not isinstance(found, dict):
                    return ABSENT
                found = found.get(step, ABSENT)
            else:
                if not isinstance(found, list) or step >= len(found):
                    return ABSENT
                found = found[step]
        return found

    def text(self) -> str:
        steps = self.steps
        first = steps[0] if steps else 0
        is_plain = isinstance(first, str) and is_word(first) and first.lower() not in KEYWORDS and first not in ROOTS
        parts: list[str] = [str(first)] if is_plain else ["payload"]
        for step in steps[1:] if is_plain else steps:
            if isinstance(step, str):
                parts.append(f".{step}" if is_word(step) else f"[{_quoted(step)}]")
            else:
                parts.append(f"[{step}]")
        return "".join(parts)


class Topic(Operand):
    def value(self, reading: Reading) -> object:
        return reading.topic

    def text(self) -> str:
        return "topic"


class Level(Operand):
    """The first level of a topic is number 0."""

    def __init__(self, number: int) -> None:
        self.is_loose = True
        self.number = number

    def value(self, reading: Reading) -> object:
        return reading.level(self.number)

    def text(self) -> str:
        return f"topic[{self.number}]"


class UserProperty(Operand):
    def __init__(self, name: str) -> None:
        self.is_loose = True
        self.name = name

    def value(self, reading: Reading) -> object:
        return reading.user_property(self.name)

    def text(self) -> str:
        return f"user.{self.name}" if is_word(self.name) else f"user[{_quoted(self.name)}]"


def literal_text(content: object) -> str:
    if isinstance(content, str):
        return _quoted(content)
    if content is None:
        return "null"
    if isinstance(content, bool):
        return "true" if content else "false"
    return repr(content)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# ---- tests -----------------------------------------------------------------------------------------------------


@mypyc_attr(allow_interpreted_subclasses=True)
class Test:
    is_stateful = False
    """Whether it asks for what was sent before."""

    def test(self, reading: Reading) -> int:
        raise NotImplementedError

    def text(self) -> str:
        raise NotImplementedError

    def inner_text(self) -> str:
        """As part of another test."""
        return self.text()


class Constant(Test):
    def __init__(self, is_true: bool) -> None:
        self.is_true = is_true

    def test(self, reading: Reading) -> int:
        return TRUE if self.is_true else FALSE

    def text(self) -> str:
        return "true" if self.is_true else "false"


class Whether(Test):
    """An operand that is true or false itself."""

    def __init__(self, operand: Operand) -> None:
        self.operand = operand

    def test(self, reading: Reading) -> int:
        value = self.operand.value(reading)
        return truth(value) if isinstance(value, bool) else UNKNOWN

    def text(self) -> str:
        return self.operand.text()


class Comparison(Test):
    def __init__(self, sign: str, left: Operand, right: Operand) -> None:
        self.sign = sign
        self.left = left
        self.right = right

    def test(self, reading: Reading) -> int:
        return compared(
            self.sign,
            self.left.value(reading),
            self.right.value(reading),
            self.left.is_loose,
            self.right.is_loose,
        )

    def text(self) -> str:
        return f"{self.left.text()} {self.sign} {self.right.text()}"


def compared(sign: str, left: object, right: object, left_is_loose: bool, right_is_loose: bool) -> int:
    if left_is_loose and kind_of(right) == A_NUMBER and isinstance(left, str):
        number = number_in(left)
        left = left if number is ABSENT else number
    elif right_is_loose and kind_of(left) == A_NUMBER and isinstance(right, str):
        number = number_in(right)
        right = right if number is ABSENT else number
    return compare(sign, left, right)


class Between(Test):
    def __init__(self, operand: Operand, low: Operand, high: Operand) -> None:
        self.operand = operand
        self.low = low
        self.high = high

    def test(self, reading: Reading) -> int:
        value = self.operand.value(reading)
        is_loose = self.operand.is_loose
        low = compared(AT_LEAST, value, self.low.value(reading), is_loose, self.low.is_loose)
        high = compared(AT_MOST, value, self.high.value(reading), is_loose, self.high.is_loose)
        return low if low < high else high

    def text(self) -> str:
        return f"{self.operand.text()} between {self.low.text()} and {self.high.text()}"


class In(Test):
    def __init__(self, operand: Operand, items: list[object]) -> None:
        self.operand = operand
        self.items = items
        # One for each kind: Python takes True for 1.
        self.numbers: set[object] = {item for item in items if kind_of(item) == A_NUMBER}
        self.texts: set[object] = {item for item in items if kind_of(item) == A_TEXT}
        self.truths: set[object] = {item for item in items if kind_of(item) == A_TRUTH}
        self.has_null = None in items

    def test(self, reading: Reading) -> int:
        value = self.operand.value(reading)
        kind = kind_of(value)
        if kind <= NO_VALUE:
            return UNKNOWN
        if kind == A_NUMBER:
            return truth(value in self.numbers)
        if kind == A_TRUTH:
            return truth(value in self.truths)
        if kind == A_NULL:
            return truth(self.has_null)
        if value in self.texts:
            return TRUE
        if self.operand.is_loose and self.numbers and isinstance(value, str):
            return truth(number_in(value) in self.numbers)
        return FALSE

    def text(self) -> str:
        return f"{self.operand.text()} in ({', '.join([literal_text(item) for item in self.items])})"


class Exists(Test):
    def __init__(self, operand: Operand) -> None:
        self.operand = operand

    def test(self, reading: Reading) -> int:
        return truth(self.operand.value(reading) is not ABSENT)

    def text(self) -> str:
        return f"exists({self.operand.text()})"


class Changed(Test):
    """Whether a value is another one than in the last message that was let through: of numbers, by more than a band.
    True if there was none."""

    def __init__(self, operand: Operand, band: float, place: int) -> None:
        self.is_stateful = True
        self.operand = operand
        self.band = band
        self.place = place
        """Among all of the condition."""

    def current(self, reading: Reading) -> object:
        value = self.operand.value(reading)
        if self.operand.is_loose and isinstance(value, str):
            number = number_in(value)
            value = value if number is ABSENT else number
        return kept_value(value)

    def test(self, reading: Reading) -> int:
        value = self.current(reading)
        if value is ABSENT:
            return UNKNOWN
        remembered = reading.remembered
        if remembered is None or remembered[self.place] is ABSENT:
            return TRUE
        return truth(differs(remembered[self.place], value, self.band))

    def text(self) -> str:
        band = f", {self.band!r}" if self.band else ""
        return f"changed({self.operand.text()}{band})"


class Not(Test):
    def __init__(self, part: Test) -> None:
        self.is_stateful = part.is_stateful
        self.part = part

    def test(self, reading: Reading) -> int:
        return TRUE - self.part.test(reading)

    def text(self) -> str:
        return f"not {self.part.inner_text()}"


class And(Test):
    def __init__(self, parts: list[Test]) -> None:
        self.parts = parts
        for part in parts:
            if part.is_stateful:
                self.is_stateful = True

    def test(self, reading: Reading) -> int:
        least = TRUE
        for part in self.parts:
            found = part.test(reading)
            if found < least:
                if found == FALSE:
                    return FALSE
                least = found
        return least

    def text(self) -> str:
        return " and ".join([part.inner_text() for part in self.parts])

    def inner_text(self) -> str:
        return f"({self.text()})"


class Or(Test):
    def __init__(self, parts: list[Test]) -> None:
        self.parts = parts
        for part in parts:
            if part.is_stateful:
                self.is_stateful = True

    def test(self, reading: Reading) -> int:
        greatest = FALSE
        for part in self.parts:
            found = part.test(reading)
            if found > greatest:
                if found == TRUE:
                    return TRUE
                greatest = found
        return greatest

    def text(self) -> str:
        return " or ".join([part.inner_text() for part in self.parts])

    def inner_text(self) -> str:
        return f"({self.text()})"
