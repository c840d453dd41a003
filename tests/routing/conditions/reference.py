"""Conditions as plain trees, written out in many ways, and what they mean, computed as simply as can be.

A tree is a tuple whose first item says what it is. This shares no code with the evaluator.
"""

from __future__ import annotations

import json
import math
import random
import re
from typing import Any

from hypothesis import strategies as st

NAMES = ["value", "unit", "a", "temp_1", "größe", "in", "topic", "with space", "quote'd"]
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MISSING = object()

numbers = st.one_of(
    st.integers(-5, 5),
    st.integers(-(10**30), 10**30),
    st.sampled_from([0.5, -2.5, 1e300, 2.0, 9007199254740993, 1e-7]),
)
texts = st.sampled_from(["C", "F", "", "it's", '"', "3", "-2.5", "é", "a/b", "1_0"])
literals = st.one_of(numbers, texts, st.booleans(), st.none())
steps = st.one_of(st.sampled_from(NAMES), st.integers(0, 2))
places = st.one_of(
    st.tuples(st.just("field"), st.lists(steps, max_size=3)),
    st.just(("topic",)),
    st.tuples(st.just("level"), st.integers(0, 3)),
    st.tuples(st.just("user"), st.sampled_from(NAMES)),
)
operands = st.one_of(places, st.tuples(st.just("literal"), literals))
ordered = st.one_of(places, st.tuples(st.just("literal"), st.one_of(numbers, texts)))

terms = st.one_of(
    st.tuples(st.just("compare"), st.sampled_from(["=", "!="]), operands, operands),
    st.tuples(st.just("compare"), st.sampled_from(["<", "<=", ">", ">="]), ordered, ordered),
    st.tuples(st.just("in"), operands, st.lists(literals, min_size=1, max_size=4)),
    st.tuples(st.just("between"), operands, operands, operands),
    st.tuples(st.just("exists"), places),
    st.tuples(st.just("whether"), places),
    st.tuples(st.just("constant"), st.booleans()),
)
trees: st.SearchStrategy[Any] = st.recursive(
    terms,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("and"), st.lists(inner, min_size=2, max_size=3)),
        st.tuples(st.just("or"), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=8,
)

values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(numbers, texts, st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)),
    max_leaves=10,
)


# ---- as text ---------------------------------------------------------------------------------------------------


class Writer:
    """Any of the ways in which a tree may be written."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *ways: str) -> str:
        return self.random.choice(ways)

    def gap(self) -> str:
        return self.pick(" ", " ", "  ", "\t", "\n ")

    def word(self, word: str) -> str:
        return self.gap() + self.pick(word, word.upper(), word.title()) + self.gap()

    def quoted(self, text: str) -> str:
        quote = self.pick("'", '"')
        return quote + text.replace(quote, quote * 2) + quote

    def literal(self, value: Any) -> str:
        if isinstance(value, str):
            return self.quoted(value)
        return json.dumps(value)

    def operand(self, tree: Any) -> str:
        match tree:
            case ("literal", value):
                return self.literal(value)
            case ("topic",):
                return "topic"
            case ("level", number):
                return f"topic[{number}]"
            case ("user", name):
                return "user" + self.step(name)
            case ("field", [*path]):
                text = "".join(self.step(step) for step in path)
                if path and path[0] in ("value", "unit", "a", "temp_1", "größe") and self.pick("y", "n") == "y":
                    return str(path[0]) + "".join(self.step(step) for step in path[1:])
                return "payload" + text
        raise AssertionError(tree)

    def step(self, step: Any) -> str:
        if isinstance(step, int):
            return f"[{step}]"
        if step.isidentifier() and self.pick("y", "n") == "y":
            return f".{step}"
        return f"[{self.quoted(step)}]"

    def tree(self, tree: Any, within: bool = False) -> str:
        text = self.bare(tree)
        if tree[0] in ("and", "or") and within:
            return f"({text})"
        return f"({text})" if self.pick("y", *"nnnnn") == "y" else text

    def bare(self, tree: Any) -> str:
        match tree:
            case ("constant", value):
                return json.dumps(value)
            case ("whether", place):
                return self.operand(place)
            case ("exists", place):
                return f"exists({self.operand(place)})"
            case ("compare", sign, left, right):
                sign = {"=": self.pick("=", "=="), "!=": self.pick("!=", "<>")}.get(sign, sign)
                gap = self.pick("", " ")
                return f"{self.operand(left)}{gap}{sign}{gap}{self.operand(right)}"
            case ("in", operand, items):
                listed = ",".join(self.literal(item) for item in items)
                return f"{self.operand(operand)}{self.word('in')}({listed})"
            case ("between", operand, low, high):
                ends = f"{self.operand(low)}{self.word('and')}{self.operand(high)}"
                return f"{self.operand(operand)}{self.word('between')}{ends}"
            case ("not", inner):
                return f"not {self.tree(inner, True)}"
            case ("and" | "or", parts):
                return self.word(tree[0]).join(self.tree(part, True) for part in parts)
        raise AssertionError(tree)


# ---- what it means -----------------------------------------------------------------------------------------------


class Meaning:
    """True, False or None, which is neither."""

    def __init__(self, topic: str, document: Any, user: list[tuple[str, str]]) -> None:
        self.topic = topic
        self.document = document
        self.user = user

    def value(self, operand: Any) -> Any:
        match operand:
            case ("literal", value):
                return value
            case ("topic",):
                return self.topic
            case ("level", number):
                levels = self.topic.split("/")
                return levels[number] if number < len(levels) else MISSING
            case ("user", name):
                return next((value for key, value in self.user if key == name), MISSING)
            case ("field", [*path]):
                found = self.document
                for step in path:
                    if isinstance(found, dict if isinstance(step, str) else list):
                        inside = step in found if isinstance(found, dict) else step < len(found)
                        found = found[step] if inside else MISSING
                    else:
                        return MISSING
                return found
        raise AssertionError(operand)

    def both(self, left: Any, right: Any) -> tuple[Any, Any]:
        one, other = self.value(left), self.value(right)
        if left[0] in ("level", "user") and is_number(other) and isinstance(one, str) and NUMBER.fullmatch(one):
            one = float(one) if any(char in one for char in ".eE") else int(one)
        elif right[0] in ("level", "user") and is_number(one) and isinstance(other, str) and NUMBER.fullmatch(other):
            other = float(other) if any(char in other for char in ".eE") else int(other)
        return one, other

    def compare(self, sign: str, left: Any, right: Any) -> bool | None:
        one, other = self.both(left, right)
        for each in (one, other):
            if each is MISSING or isinstance(each, (dict, list, bytes)) or (is_number(each) and math.isnan(each)):
                return None
        if kind(one) != kind(other):
            return {"=": False, "!=": True}.get(sign)
        if sign in ("=", "!="):
            return bool((one == other) == (sign == "="))
        if kind(one) not in ("number", "text"):
            return None
        return bool({"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[sign])

    def truth(self, tree: Any) -> bool | None:
        match tree:
            case ("constant", value):
                return bool(value)
            case ("whether", place):
                value = self.value(place)
                return bool(value) if isinstance(value, bool) else None
            case ("exists", place):
                return self.value(place) is not MISSING
            case ("compare", sign, left, right):
                return self.compare(sign, left, right)
            case ("in", operand, items):
                found = [self.compare("=", operand, ("literal", item)) for item in items]
                return None if None in found else True in found
            case ("between", operand, low, high):
                return both_true([self.compare(">=", operand, low), self.compare("<=", operand, high)])
            case ("not", inner):
                inside = self.truth(inner)
                return None if inside is None else not inside
            case ("and", parts):
                return both_true([self.truth(part) for part in parts])
            case ("or", parts):
                found = [self.truth(part) for part in parts]
                return True if True in found else None if None in found else False
        raise AssertionError(tree)


def both_true(found: list[bool | None]) -> bool | None:
    return False if False in found else None if None in found else True


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def kind(value: Any) -> str:
    if is_number(value):
        return "number"
    return {str: "text", bool: "truth", type(None): "null"}[type(value)]
