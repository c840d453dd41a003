"""The language of conditions, read from its text.

    condition   = [ test ] [ "limit" count "per" time ]            one of them at least
    test        = all { "or" all }          all = one { "and" one }          one = [ "not" ] one | "(" test ")"
                | "exists" "(" place ")" | "changed" "(" place [ "," band ] ")"
                | operand [ sign operand | [ "not" ] "in" "(" literal { "," literal } ")"
                                         | [ "not" ] "between" operand "and" operand ]
    operand     = literal | place           literal = number | text | "true" | "false" | "null"
    place       = "topic" | "topic[" n "]" | "user." name | [ "payload" ] { "." name | "[" n "]" | "[" text "]" }
    sign        = "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">="
    time        = number ( "ms" | "s" | "m" | "h" )

It is read from left to right without going back, each nesting one level of recursion, of which there are `DEEPEST`.
Every text is a condition or raises a ConditionError that has the place.
"""

from __future__ import annotations

from typing import Final

from headwater.routing.conditions.errors import ConditionError
from headwater.routing.conditions.nodes import (
    KEYWORDS,
    ROOTS,
    And,
    Between,
    Changed,
    Comparison,
    Constant,
    Exists,
    Field,
    In,
    Level,
    Literal,
    Not,
    Operand,
    Or,
    Step,
    Test,
    Topic,
    UserProperty,
    Whether,
)
from headwater.routing.conditions.tokens import END, NUMBER, SIGN, TEXT, WORD, Token, tokens_of
from headwater.routing.conditions.values import EQUAL, UNEQUAL

DEEPEST: Final = 16
"""Parentheses and `not`s within each other."""
MOST_TERMS: Final = 64
"""Comparisons and other tests of a condition."""
MOST_ITEMS: Final = 100
"""Literals of one `in`."""
MOST_STEPS: Final = 16
"""Names and numbers of a place in the payload."""
LARGEST_INDEX: Final = 65535
MOST_PER: Final = 1_000_000
LONGEST_PER: Final = 7 * 86_400.0
SHORTEST_PER: Final = 0.001

SIGNS: Final = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Parsed:
    """`test`: None for a condition that is a limit alone; `count` messages of a topic are let through in `seconds`, 0:
    any number."""

    def __init__(
        self, source: str, terms: int, test: Test | None, changes: list[Changed], count: int, seconds: float
    ) -> None:
        self.source = source
        self.terms = terms
        self.test = test
        self.changes = changes
        self.count = count
        self.seconds = seconds


def parse(source: str) -> Parsed:
    """Raises ConditionError."""
    return _Parser(tokens_of(source)).condition(source)


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.terms = 0
        self.changes: list[Changed] = []

    # ---- tokens ------------------------------------------------------------------------------------------------

    def _now(self) -> Token:
        return self.tokens[self.at]

    def _next(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != END:
            self.at += 1
        return token

    def _is_word(self, word: str) -> bool:
        token = self.tokens[self.at]
        return token.kind == WORD and token.text.lower() == word

    def _is_sign(self, sign: str) -> bool:
        token = self.tokens[self.at]
        return token.kind == SIGN and token.text == sign

    def _take_word(self, word: str) -> bool:
        if self._is_word(word):
            self.at += 1
            return True
        return False

    def _take_sign(self, sign: str) -> bool:
        if self._is_sign(sign):
            self.at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take_sign(sign):
            raise self._wanted(f"'{sign}'")

    def _wanted(self, what: str) -> ConditionError:
        token = self._now()
        return ConditionError(f"expected {what}, found {token.shown()}", token.place)

    # ---- tests -------------------------------------------------------------------------------------------------

    def condition(self, source: str) -> Parsed:
        test = None if self._is_word("limit") else self._test()
        count = 0
        seconds = 0.0
        if self._take_word("limit"):
            count, seconds = self._limit()
        if self._now().kind != END:
            raise self._wanted("'and', 'or', 'limit' or the end")
        return Parsed(source, self.terms, test, self.changes, count, seconds)

    def _limit(self) -> tuple[int, float]:
        token = self._next()
        count = token.number
        if not isinstance(count, int) or not 1 <= count <= MOST_PER:
            raise ConditionError(f"expected a whole number from 1 to {MOST_PER} after 'limit'", token.place)
        if not self._take_word("per"):
            raise self._wanted("'per'")
        period = self._next()
        unit = self._next()
        factor = UNITS.get(unit.text) if unit.kind == WORD else None
        if period.kind != NUMBER or factor is None:
            raise ConditionError("expected a time such as 10s (ms, s, m, h) after 'per'", period.place)
        seconds = _as_float(period) * factor
        if not SHORTEST_PER <= seconds <= LONGEST_PER:
            raise ConditionError("expected a time from 1ms to 168h", period.place)
        return count, round(seconds * 1000.0) / 1000.0

    def _test(self) -> Test:
        parts = [self._all()]
        while self._take_word("or"):
            parts.append(self._all())
        if len(parts) == 1:
            return parts[0]
        flat: list[Test] = []
        for part in parts:
            if isinstance(part, Or):
                flat.extend(part.parts)
            else:
                flat.append(part)
        return Or(flat)

    def _all(self) -> Test:
        parts = [self._one()]
        while self._take_word("and"):
            parts.append(self._one())
        if len(parts) == 1:
            return parts[0]
        flat: list[Test] = []
        for part in parts:
            if isinstance(part, And):
                flat.extend(part.parts)
            else:
                flat.append(part)
        return And(flat)

    def _one(self) -> Test:
        token = self._now()
        if self._is_word("not") or self._is_sign("("):
            self.at += 1
            self.depth += 1
            if self.depth > DEEPEST:
                raise ConditionError(f"nested deeper than {DEEPEST} levels", token.place)
            if token.kind == SIGN:
                inner = self._test()
                self._expect(")")
            else:
                inner = Not(self._one())
            self.depth -= 1
            return inner
        self.terms += 1
        if self.terms > MOST_TERMS:
            raise ConditionError(f"more than {MOST_TERMS} tests", token.place)
        if self._take_word("exists"):
            self._expect("(")
            place = self._place()
            self._expect(")")
            return Exists(place)
        if self._take_word("changed"):
            return self._changed()
        return self._comparison()

    def _changed(self) -> Test:
        self._expect("(")
        place = self._place()
        band = 0.0
        if self._take_sign(","):
            token = self._next()
            band = _as_float(token) if token.kind == NUMBER else -1.0
            if band < 0.0:
                raise ConditionError("expected a number that is not negative as the band", token.place)
        self._expect(")")
        changed = Changed(place, band, len(self.changes))
        self.changes.append(changed)
        return changed

    def _comparison(self) -> Test:
        left = self._operand()
        token = self._now()
        sign = SIGNS.get(token.text) if token.kind == SIGN else None
        if sign is not None:
            self.at += 1
            right = self._operand()
            has_null = _is_unordered(left) or _is_unordered(right)
            if has_null and sign not in (EQUAL, UNEQUAL):
                raise ConditionError("true, false and null are neither more nor less than anything", token.place)
            return Comparison(sign, left, right)
        is_not = self._take_word("not")
        test: Test
        if self._take_word("in"):
            test = In(left, self._items())
        elif self._take_word("between"):
            low = self._operand()
            if not self._take_word("and"):
                raise self._wanted("'and'")
            test = Between(left, low, self._operand())
        elif is_not:
            raise self._wanted("'in' or 'between'")
        elif isinstance(left, Literal):
            if isinstance(left.content, bool):
                return Constant(left.content)
            raise self._wanted("a comparison")
        else:
            return Whether(left)
        return Not(test) if is_not else test

    def _items(self) -> list[object]:
        self._expect("(")
        items: list[object] = []
        while True:
            token = self._now()
            literal = self._literal()
            if literal is None:
                raise self._wanted("a number, a text, true, false or null")
            if len(items) == MOST_ITEMS:
                raise ConditionError(f"more than {MOST_ITEMS} values in a list", token.place)
            items.append(literal.content)
            if not self._take_sign(","):
                self._expect(")")
                return items

    # ---- operands ----------------------------------------------------------------------------------------------

    def _operand(self) -> Operand:
        literal = self._literal()
        return self._place() if literal is None else literal

    def _literal(self) -> Literal | None:
        """None: there is none."""
        token = self._now()
        if token.kind == NUMBER:
            self.at += 1
            return Literal(token.number)
        if token.kind == TEXT:
            self.at += 1
            return Literal(token.text)
        if self._take_word("true"):
            return Literal(True)
        if self._take_word("false"):
            return Literal(False)
        if self._take_word("null"):
            return Literal(None)
        return None

    def _place(self) -> Operand:
        token = self._now()
        if token.kind != WORD:
            raise self._wanted("a name or a value")
        if token.text.lower() in KEYWORDS:
            found = f"found '{token.text}' (write payload.{token.text} for a field)"
            raise ConditionError(f"expected a name or a value, {found}", token.place)
        self.at += 1
        if token.text not in ROOTS:
            return Field(self._steps([token.text]))
        steps = self._steps([])
        if token.text == "payload":
            return Field(steps)
        if token.text == "topic":
            if not steps:
                return Topic()
            level = steps[0]
            if len(steps) == 1 and isinstance(level, int):
                return Level(level)
            raise ConditionError("expected topic or topic[0], topic[1], … (payload.topic is a field)", token.place)
        if len(steps) == 1 and isinstance(steps[0], str):
            return UserProperty(steps[0])
        raise ConditionError("expected user.name for a user property (payload.user is a field)", token.place)

    def _steps(self, steps: list[Step]) -> list[Step]:
        while True:
            place = self._now().place
            if self._take_sign("."):
                token = self._next()
                if token.kind != WORD:
                    raise ConditionError(f"expected a name after '.', found {token.shown()}", token.place)
                steps.append(token.text)
            elif self._take_sign("["):
                steps.append(self._index())
                self._expect("]")
            else:
                return steps
            if len(steps) > MOST_STEPS:
                raise ConditionError(f"a place of more than {MOST_STEPS} steps", place)

    def _index(self) -> Step:
        token = self._next()
        if token.kind == TEXT:
            return token.text
        index = token.number
        if isinstance(index, int) and 0 <= index <= LARGEST_INDEX:
            return index
        raise ConditionError(f"expected a number from 0 to {LARGEST_INDEX} or a name in quotes", token.place)


def _as_float(token: Token) -> float:
    number = token.number
    assert isinstance(number, (int, float))
    return float(number)


def _is_unordered(operand: Operand) -> bool:
    return isinstance(operand, Literal) and (operand.content is None or isinstance(operand.content, bool))
