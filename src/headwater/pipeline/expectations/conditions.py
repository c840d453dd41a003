"""Conditions of expectations: Spark's SQL in, an expression of Arrow out, which means the same for every row.

Theory. Rows of silver are in Arrow when they are made, in Python on executors. To ask Spark about them, each would go
there and back, which costs more than ten rules do. So a condition is read as Spark's SQL on the driver, once, and
becomes an expression of Arrow, which executors evaluate for a batch at a time. Only what means the same in both is
taken; the rest is refused before anything starts, with the place. A test evaluates random conditions by Spark and here.

What differs between the two is seen to here: Spark compares NaN (equal to itself, above all numbers), divides to
doubles and refuses to divide by zero, cuts no text but blanks by `trim`, and compares a whole number with a fraction
as decimals, which Arrow does not: that is refused. Nulls are unknown in both (Kleene's logic).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp, parse
from sqlglot.errors import ParseError, SqlglotError

from headwater.pipeline.sql import DIALECT
from headwater.suggestion import unknown

LONGEST: Final = 10_000
"""Characters of a condition."""
KINDS: Final = {
    "string": "text",
    "double": "double",
    "tinyint": "whole",
    "int": "whole",
    "bigint": "whole",
    "boolean": "boolean",
    "timestamp": "timestamp",
    "binary": "bytes",
    "date": "date",
}
"""What a condition makes of columns, by Spark's names of their types."""
ARROW: Final[dict[str, Any]] = {
    "text": pa.string(),
    "double": pa.float64(),
    "whole": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "interval": pa.duration("us"),
}
SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)")
ESCAPED: Final = re.compile(r"\\(?![%_\\])")
"""In a pattern, what Spark refuses."""
ARGUMENTS: Final = frozenset(
    ("this", "expression", "expressions", "low", "high", "ifs", "default", "true", "false", "is_string", "quoted", "to")
) | {"unit", "table", "negate"}
"""Of the parts of a parsed condition, those that are looked at: one that the parser has beside them would be lost."""
WHOLE_LIMIT: Final = 1 << 63
KNOWN: Final = (
    "there are =, <>, <, <=, >, >=, <=>, AND, OR, NOT, IS NULL, IS TRUE, BETWEEN, IN, LIKE, +, -, *, /, CASE, IF, "
    "COALESCE, NULLIF, ABS, LENGTH, TRIM, STARTSWITH, ENDSWITH, CONTAINS, ISNAN, TRY_DIVIDE, UNIX_MICROS, TIMESTAMP "
    "'…' and INTERVAL"
)


class ConditionError(ValueError):
    """A condition that cannot be; says where, and why."""


@dataclass(frozen=True)
class Typed:
    """A part of a condition. `kind` is one of ARROW's, `bytes`, `date`, `null`, or `fraction`: a number that is said
    with a point. `said` is what a literal says; `is_finite`: it is never NaN."""

    kind: str
    expression: Any
    said: Any = None
    is_finite: bool = True


def condition(sql: str, columns: Mapping[str, str]) -> pc.Expression:
    """True, false or null for a row of these columns, which have Spark's names of their types. Raises
    ConditionError."""
    if len(sql) > LONGEST:
        raise ConditionError(f"it has {len(sql)} characters, and {LONGEST} are allowed")
    try:
        found = [each for each in parse(sql, read=DIALECT) if each is not None]
    except ParseError as error:
        raise ConditionError(_where_parsing_stopped(error)) from None
    except SqlglotError:
        raise ConditionError("a quote or a comment in it does not end") from None
    if len(found) != 1:
        raise ConditionError("it is empty" if not found else "it is more than one condition; write AND between them")
    compiled = Compiler(sql, {name.lower(): (name, KINDS[type]) for name, type in columns.items()})
    whole = compiled.of(found[0])
    if whole.kind != "boolean":
        raise ConditionError(f"it is no condition but a value ({_called(whole.kind)})")
    if not compiled.asked:
        raise ConditionError("it names no column")
    return whole.expression


def _where_parsing_stopped(error: ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    words, column = first.get("highlight"), first.get("col")
    place = f' at "{words}"' if words else ""
    return f"it cannot be read{place}" + (f" (character {column})" if column else "")


def _called(kind: str) -> str:
    return {"whole": "a whole number", "double": "a number", "fraction": "a number", "text": "a text"}.get(
        kind, f"of type {kind}"
    )


class Compiler:
    """Of one condition. `asked` are the columns that it names."""

    def __init__(self, sql: str, columns: Mapping[str, tuple[str, str]]) -> None:
        self._sql = sql
        self._columns = columns
        self.asked: set[str] = set()

    def of(self, node: Any) -> Typed:
        for kind, make in MAKERS.items():
            if isinstance(node, kind):
                further = [name for name, value in node.args.items() if value and name not in ARGUMENTS]
                if further and not isinstance(node, exp.Div | exp.Coalesce):
                    self.refuse(
                        node, f"{type(node).__name__.upper()} … {further[0].upper()} cannot be used in a condition"
                    )
                return make(self, node)
        name = node.name if isinstance(node, exp.Anonymous) else type(node).__name__
        self.refuse(node, f"{name.upper()} cannot be used in a condition; {KNOWN}")

    def refuse(self, node: Any, why: str) -> NoReturn:
        """At the first word of the part that says where it is."""
        places = [each.meta for each in node.walk() if "start" in each.meta] if isinstance(node, exp.Expression) else []
        if not places:
            raise ConditionError(why)
        first = min(places, key=lambda each: each["start"])
        words = self._sql[first["start"] : first["end"] + 1]
        raise ConditionError(f'at "{words}" (character {first["start"] + 1}): {why}')

    # ---- columns and literals ----------------------------------------------------------------------------------

    def column(self, node: exp.Column) -> Typed:
        if node.table:
            self.refuse(node, "a condition is about the columns of one row; leave the table's name away")
        known = self._columns.get(node.name.lower())
        if known is None:
            self.refuse(node, unknown("column", node.name, [name for name, _ in self._columns.values()]))
        name, kind = known
        self.asked.add(name)
        field = pc.field(name)
        return Typed(kind, field.cast(pa.int64()) if kind == "whole" else field)

    def literal(self, node: exp.Literal) -> Typed:
        if node.is_string:
            return Typed("text", pc.scalar(node.name), node.name)
        try:
            number = Decimal(node.name)
        except InvalidOperation:
            self.refuse(node, f"{node.name} is no number")
        if "e" in node.name.lower():
            return Typed("double", pc.scalar(float(number)), float(number))
        if "." in node.name or abs(number) >= WHOLE_LIMIT:
            return Typed("fraction", pc.scalar(float(number)), number)
        return Typed("whole", pc.scalar(pa.scalar(int(number), pa.int64())), int(number))

    def negative(self, node: exp.Neg) -> Typed:
        found = self.of(node.this)
        if found.kind == "fraction" or (found.kind in ("whole", "double") and found.said is not None):
            said = -found.said
            value = pa.scalar(said, pa.int64()) if found.kind == "whole" else pa.scalar(float(said))
            return Typed(found.kind, pc.scalar(value), said)
        self.expect(node, found, "whole", "double")
        return Typed(found.kind, pc.negate_checked(found.expression), None, found.is_finite)

    def moment(self, node: exp.Cast) -> Typed:
        """TIMESTAMP '…': the only cast but that of a whole number to a double."""
        to = node.to.this
        if to in (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ) and isinstance(node.this, exp.Literal):
            return self.as_moment(node.this, node.this.name)
        if to == exp.DType.DOUBLE and isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
            found = self.of(node.this)
            self.expect(node, found, "whole", "double", "fraction")
            return Typed("double", self.as_double(found), None, found.is_finite)
        self.refuse(node, f"CAST to {node.to.sql()} cannot be used in a condition; {KNOWN}")

    def as_moment(self, node: Any, text: str) -> Typed:
        if not MOMENT.fullmatch(text):
            self.refuse(node, f"{text!r} is no time with its zone, such as 2026-01-31T12:00:00Z")
        try:
            found = datetime.fromisoformat(text)
        except ValueError as error:
            self.refuse(node, f"{text!r} is no time: {error}")
        return Typed("timestamp", pc.scalar(pa.scalar(found, ARROW["timestamp"])), text)

    def interval(self, node: exp.Interval) -> Typed:
        unit = node.args.get("unit")
        name = "" if unit is None else unit.name.lower().rstrip("s")
        if name not in SECONDS or not isinstance(node.this, exp.Literal):
            self.refuse(
                node, "an interval is said as INTERVAL 5 MINUTES: a number of seconds, minutes, hours, days or weeks"
            )
        try:
            micros = Decimal(node.this.name.strip()) * SECONDS[name] * 1_000_000
        except InvalidOperation:
            self.refuse(node, f"{node.this.name!r} is no number")
        if micros != int(micros) or ("." in node.this.name and name != "second"):
            self.refuse(node, "only seconds have fractions, down to microseconds")
        return Typed("interval", pc.scalar(pa.scalar(int(micros), ARROW["interval"])), int(micros))

    # ---- types -------------------------------------------------------------------------------------------------

    def expect(self, node: Any, found: Typed, *kinds: str) -> None:
        if found.kind not in (*kinds, "null"):
            wanted = " or ".join(_called(kind) for kind in kinds if kind != "fraction")
            self.refuse(node, f"this is {_called(found.kind)}, and has to be {wanted}")

    def as_double(self, found: Typed) -> Any:
        if found.kind == "null":
            return _null("double")
        if found.kind == "whole" and found.said is not None:
            return pc.scalar(float(found.said))
        return found.expression.cast(pa.float64(), safe=False) if found.kind == "whole" else found.expression

    def alike(self, node: Any, parts: Sequence[Typed]) -> tuple[str, list[Any]]:
        """One kind for all of them, and each as that."""
        kinds = {part.kind for part in parts} - {"null"}
        if "timestamp" in kinds and "text" in kinds:
            parts = [
                self.as_moment(node, part.said) if isinstance(part.said, str) and part.kind == "text" else part
                for part in parts
            ]
            kinds = {part.kind for part in parts} - {"null"}
        if kinds <= {"whole"}:
            kind = "whole" if kinds else "boolean"
        elif "double" in kinds and kinds <= {"whole", "double", "fraction"}:
            return "double", [self.as_double(part) for part in parts]
        elif "fraction" in kinds:
            self.refuse(
                node,
                "a fraction is compared with a column of type double; make one of a whole number: CAST(… AS DOUBLE)",
            )
        elif len(kinds) > 1:
            self.refuse(node, f"these do not go together: {', '.join(sorted(map(_called, kinds)))}")
        else:
            [kind] = kinds
        if kind not in ARROW:
            self.refuse(node, f"a column of type {kind} can only be asked whether it IS NULL")
        return kind, [_null(kind) if part.kind == "null" else part.expression for part in parts]

    # ---- operators ---------------------------------------------------------------------------------------------

    def compared(self, node: exp.Binary) -> Typed:
        left, right = self.of(node.this), self.of(node.expression)
        return Typed("boolean", self.comparison(node, type(node), left, right))

    def comparison(self, node: Any, operator: Any, left: Typed, right: Typed) -> Any:
        kind, (one, other) = self.alike(node, (left, right))
        if kind == "boolean" and operator not in (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ):
            self.refuse(node, "true and false are only equal or not")
        may_be_nan = kind == "double" and not (left.is_finite and right.is_finite)
        if operator in (exp.NullSafeEQ, exp.NullSafeNEQ):
            both = pc.and_kleene(pc.is_null(one), pc.is_null(other))
            same = pc.or_kleene(both, pc.coalesce(_equal(one, other, may_be_nan), pc.scalar(False)))
            return same if operator is exp.NullSafeEQ else pc.invert(same)
        if operator in (exp.EQ, exp.NEQ):
            same = _equal(one, other, may_be_nan)
            return same if operator is exp.EQ else pc.invert(same)
        if operator in (exp.GT, exp.LTE):
            greater = _less(other, one, may_be_nan)
            return greater if operator is exp.GT else pc.invert(greater)
        less = _less(one, other, may_be_nan)
        return less if operator is exp.LT else pc.invert(less)

    def between(self, node: exp.Between) -> Typed:
        found, low, high = (self.of(node.args[name]) for name in ("this", "low", "high"))
        above, below = self.comparison(node, exp.GTE, found, low), self.comparison(node, exp.LTE, found, high)
        return Typed("boolean", pc.and_kleene(above, below))

    def among(self, node: exp.In) -> Typed:
        if not node.expressions:
            self.refuse(node, "IN is followed by a list of values")
        found = self.of(node.this)
        answer = None
        for each in node.expressions:
            same = self.comparison(node, exp.EQ, found, self.of(each))
            answer = same if answer is None else pc.or_kleene(answer, same)
        return Typed("boolean", answer)

    def both(self, node: exp.Binary) -> Typed:
        join: Callable[..., Any] = pc.and_kleene if isinstance(node, exp.And) else pc.or_kleene
        return Typed("boolean", join(self.truth(node.this), self.truth(node.expression)))

    def truth(self, node: Any) -> Any:
        found = self.of(node)
        self.expect(node, found, "boolean")
        return _null("boolean") if found.kind == "null" else found.expression

    def is_something(self, node: exp.Is) -> Typed:
        if isinstance(node.expression, exp.Null):
            return Typed("boolean", pc.is_null(self.of(node.this).expression))
        if not isinstance(node.expression, exp.Boolean):
            self.refuse(node, "IS is followed by NULL, TRUE or FALSE")
        wanted = pc.scalar(bool(node.expression.this))
        return Typed("boolean", pc.coalesce(pc.equal(self.truth(node.this), wanted), pc.scalar(False)))

    def calculated(self, node: exp.Binary) -> Typed:
        left, right = self.of(node.this), self.of(node.expression)
        kinds = {left.kind, right.kind}
        sign = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply"}[type(node)]
        if kinds & {"timestamp", "interval"}:
            return self.moved(node, left, right, sign)
        self.expect(node.this, left, "whole", "double", "fraction")
        self.expect(node.expression, right, "whole", "double", "fraction")
        if left.said is not None and right.said is not None:
            self.refuse(node, "write the result of this")
        kind, (one, other) = self.alike(node, (left, right))
        call = getattr(pc, sign if kind == "double" else f"{sign}_checked")
        return Typed(kind, call(one, other), None, kind != "double")

    def moved(self, node: exp.Binary, left: Typed, right: Typed, sign: str) -> Typed:
        """A time and an interval, or two times."""
        kinds = (left.kind, sign, right.kind)
        if kinds == ("timestamp", "subtract", "timestamp"):
            return Typed("interval", pc.subtract(left.expression, right.expression))
        if kinds in (("timestamp", "subtract", "interval"), ("timestamp", "add", "interval")):
            return Typed("timestamp", getattr(pc, sign)(left.expression, right.expression))
        self.refuse(node, "of times there are: time - time, time + interval, time - interval")

    def divided(self, node: Any) -> Typed:
        left, right = self.of(node.this), self.of(node.expression)
        for part, found in ((node.this, left), (node.expression, right)):
            self.expect(part, found, "whole", "double", "fraction")
        if left.said is not None and right.said is not None:
            self.refuse(node, "write the result of this")
        one, other = self.as_double(left), self.as_double(right)
        if isinstance(node, exp.Div):
            if not right.said:
                self.refuse(node, "Spark refuses to divide by zero; TRY_DIVIDE(…, …) is null then")
            return Typed("double", pc.divide(one, other), None, False)
        safe = pc.if_else(pc.equal(other, pc.scalar(0.0)), _null("double"), pc.divide(one, other))
        return Typed("double", safe, None, False)

    # ---- functions ---------------------------------------------------------------------------------------------

    def chosen(self, node: Any) -> Typed:
        """CASE, and IF."""
        if isinstance(node, exp.Case):
            if node.this is not None:
                self.refuse(node, "say CASE WHEN … THEN … END")
            ways, rest = node.args["ifs"], node.args.get("default")
        else:
            ways, rest = [node], node.args.get("false")
        if any(isinstance(each.this, exp.Null) for each in ways):
            self.refuse(node, "NULL is no condition to choose by")
        conditions = [self.truth(each.this) for each in ways]
        values = [self.of(each.args["true"]) for each in ways]
        values.append(Typed("null", None) if rest is None else self.of(rest))
        kind, made = self.alike(node, values)
        answer = made.pop()
        for holds, value in reversed(list(zip(conditions, made, strict=True))):
            answer = pc.if_else(pc.coalesce(holds, pc.scalar(False)), value, answer)
        return Typed(kind, answer, None, all(each.is_finite for each in values))

    def first_known(self, node: exp.Coalesce) -> Typed:
        parts = [self.of(each) for each in (node.this, *node.expressions)]
        kind, made = self.alike(node, parts)
        return Typed(kind, pc.coalesce(*made), None, all(each.is_finite for each in parts))

    def null_if(self, node: exp.Nullif) -> Typed:
        left, right = self.of(node.this), self.of(node.expression)
        same = pc.coalesce(self.comparison(node, exp.EQ, left, right), pc.scalar(False))
        kind, (one, _) = self.alike(node, (left, right))
        return Typed(kind, pc.if_else(same, _null(kind), one), None, left.is_finite)

    def absolute(self, node: exp.Abs) -> Typed:
        found = self.of(node.this)
        self.expect(node, found, "whole", "double")
        return Typed(found.kind, pc.abs_checked(found.expression), None, found.is_finite)

    def text(self, node: Any) -> Any:
        found = self.of(node)
        self.expect(node, found, "text")
        return _null("text") if found.kind == "null" else found.expression

    def length(self, node: exp.Length) -> Typed:
        return Typed("whole", pc.utf8_length(self.text(node.this)).cast(pa.int64()))

    def trimmed(self, node: exp.Trim) -> Typed:
        if node.expression is not None or node.args.get("position"):
            self.refuse(node, "TRIM takes one text, and cuts blanks off")
        return Typed("text", pc.utf8_trim(self.text(node.this), characters=" "))

    def like(self, node: exp.Like) -> Typed:
        pattern = self.said_text(node, node.expression)
        if ESCAPED.search(pattern):
            self.refuse(node, r"in a pattern, \ stands before %, _ or \ only")
        found = pc.match_like(self.text(node.this), pattern=pattern)
        return Typed("boolean", pc.invert(found) if node.args.get("negate") else found)

    def found_in(self, node: Any) -> Typed:
        pattern = self.said_text(node, node.expression)
        text = self.text(node.this)
        if isinstance(node, exp.Contains):
            return Typed("boolean", pc.match_substring(text, pattern=pattern))
        call = pc.starts_with if isinstance(node, exp.StartsWith) else pc.ends_with
        return Typed("boolean", call(text, pattern=pattern))

    def said_text(self, node: Any, said: Any) -> str:
        if not isinstance(said, exp.Literal) or not said.is_string:
            self.refuse(node, "what it is compared with has to be said as a text in quotes")
        return str(said.name)

    def is_nan(self, node: exp.IsNan) -> Typed:
        """Spark says false of null."""
        found = self.of(node.this)
        self.expect(node, found, "double")
        return Typed("boolean", pc.coalesce(pc.is_nan(found.expression), pc.scalar(False)))

    def micros(self, node: exp.UnixMicros) -> Typed:
        found = self.of(node.this)
        self.expect(node, found, "timestamp")
        return Typed("whole", found.expression.cast(pa.int64()))


MAKERS: Final[dict[Any, Callable[[Compiler, Any], Typed]]] = {
    exp.Paren: lambda compiler, node: compiler.of(node.this),
    exp.Column: Compiler.column,
    exp.Literal: Compiler.literal,
    exp.Boolean: lambda compiler, node: Typed("boolean", pc.scalar(bool(node.this)), bool(node.this)),
    exp.Null: lambda compiler, node: Typed("null", _null("boolean")),
    exp.Neg: Compiler.negative,
    exp.Cast: Compiler.moment,
    exp.Interval: Compiler.interval,
    **dict.fromkeys(
        (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ), Compiler.compared
    ),
    exp.Between: Compiler.between,
    exp.In: Compiler.among,
    **dict.fromkeys((exp.And, exp.Or), Compiler.both),
    exp.Not: lambda compiler, node: Typed("boolean", pc.invert(compiler.truth(node.this))),
    exp.Is: Compiler.is_something,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), Compiler.calculated),
    **dict.fromkeys((exp.Div, exp.SafeDivide), Compiler.divided),
    **dict.fromkeys((exp.Case, exp.If), Compiler.chosen),
    exp.Coalesce: Compiler.first_known,
    exp.Nullif: Compiler.null_if,
    exp.Abs: Compiler.absolute,
    exp.Length: Compiler.length,
    exp.Trim: Compiler.trimmed,
    exp.Like: Compiler.like,
    **dict.fromkeys((exp.StartsWith, exp.EndsWith, exp.Contains), Compiler.found_in),
    exp.IsNan: Compiler.is_nan,
    exp.UnixMicros: Compiler.micros,
}


def _null(kind: str) -> Any:
    return pc.scalar(pa.scalar(None, ARROW[kind]))


def _equal(one: Any, other: Any, may_be_nan: bool) -> Any:
    same = pc.equal(one, other)
    return pc.or_kleene(same, pc.and_kleene(pc.is_nan(one), pc.is_nan(other))) if may_be_nan else same


def _less(one: Any, other: Any, may_be_nan: bool) -> Any:
    """NaN is above all numbers."""
    less = pc.less(one, other)
    return pc.or_kleene(less, pc.and_kleene(pc.invert(pc.is_nan(one)), pc.is_nan(other))) if may_be_nan else less
