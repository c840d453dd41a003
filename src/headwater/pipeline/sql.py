"""The SQL that people ask tables in: one dialect, Spark's, whichever engine answers.

Theory. Two engines with two dialects would give two answers to one question, some of them silently: `split(…)[1]` is
the second part in Spark and the first in DuckDB. So a question is parsed as Spark's SQL (sqlglot), found to be one that
only reads, and for DuckDB written in DuckDB's words. Where the written form would still mean something else, the tree
is changed before: those are the functions below `_as_spark_means_it`, and tests run each on both engines. What cannot
be written so is refused with the advice to ask Spark.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from sqlglot import exp, parse
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError, TokenError, UnsupportedError

DIALECT: Final = "databricks"
"""Spark's, with `document:path::type`."""
READING: Final = ("SHOW", "EXPLAIN")
"""Statements that sqlglot does not look into."""
BEGINNINGS: Final = frozenset(("SELECT", "WITH", "FROM", "VALUES", "TABLE", "DESCRIBE", "DESC", *READING))
BYTES: Final = frozenset(("payload", "raw"))
"""Columns whose text is their bytes in UTF-8."""
WHOLE: Final = frozenset((exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT))
FRACTIONS: Final = (exp.Avg, exp.Div, exp.Median, exp.Quantile)
MACROS: Final = (
    "CREATE MACRO spark_length(x VARCHAR) AS length(x), (x BLOB) AS octet_length(x)",
    "CREATE MACRO spark_truncated(x DOUBLE) AS trunc(x), (x FLOAT) AS trunc(x), (x INTEGER) AS x, (x BIGINT) AS x, "
    "(x HUGEINT) AS x, (x BOOLEAN) AS x, (x VARCHAR) AS x, (x TIMESTAMPTZ) AS epoch_us(x) // 1000000",
)
"""What DuckDB has to know before it is asked."""


class Refused(ValueError):
    """This is not asked, or not so; the text says why."""


class Unreadable(Refused):
    """This is no SQL that the parser knows."""


class NeedsSpark(Refused):
    """DuckDB cannot be asked this."""


class Question:
    """One statement that only reads. Raises Refused."""

    def __init__(self, sql: str) -> None:
        logging.getLogger("sqlglot").setLevel(logging.ERROR)  # what it does not look into is not the caller's concern
        try:
            statements = [each for each in parse(sql, read=DIALECT) if each is not None]
        except (ParseError, TokenError) as error:
            raise Unreadable(_first_line(error)) from None
        if len(statements) != 1:
            raise Refused("there is no question" if not statements else "one statement at a time, please")
        self.tree = statements[0]
        self._check_reads()

    def _check_reads(self) -> None:
        tree = self.tree
        if isinstance(tree, exp.Query | exp.Values | exp.Describe | exp.Pivot) and not tree.find(exp.Into, exp.DML):
            return
        word = tree.name if isinstance(tree, exp.Command) else tree.key
        if isinstance(tree, exp.Command) and word.upper() in READING:
            return
        raise Refused(
            f"{word.upper()} is not possible: this only reads. Tables are written by `headwater pipeline run`; "
            "`headwater pipeline remake` makes one again"
        )

    @property
    def tables(self) -> set[str]:
        """Names that it reads from, without those that it defines."""
        own = {each.alias.lower() for each in self.tree.find_all(exp.CTE)}
        named = {each.name.lower() for each in self.tree.find_all(exp.Table) if isinstance(each.this, exp.Identifier)}
        return named - own

    @property
    def is_about_tables(self) -> bool:
        """SHOW and the like: not a question to one table."""
        return isinstance(self.tree, exp.Command | exp.Describe)

    def for_duckdb(self) -> str:
        """Raises NeedsSpark."""
        try:
            return self.tree.transform(_as_spark_means_it).sql("duckdb", unsupported_level=ErrorLevel.RAISE)
        except UnsupportedError as error:
            raise NeedsSpark(_first_line(error)) from None


def check_reads(sql: str) -> Question | None:
    """For Spark, which knows more words than our parser: None if only Spark can read it. Raises Refused."""
    try:
        return Question(sql)
    except Unreadable:
        word = re.match(r"\W*(\w*)", sql)
        if word is None or word[1].upper() not in BEGINNINGS:
            raise
        return None


def _as_spark_means_it(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.Cast):
        return _cast(node)
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("variant_get", "try_variant_get"):
        return _variant_get(node)
    if isinstance(node, exp.Div):
        return _div(node)
    if isinstance(node, exp.Length):
        return _call("spark_length", node.this)
    if isinstance(node, exp.Quantile):  # `percentile`, which interpolates; DuckDB's QUANTILE does not
        return _call("quantile_cont", node.this, node.args["quantile"])
    if isinstance(node, exp.UnixSeconds):  # not rounded
        return _call("spark_truncated", exp.cast(node.this, "timestamptz"))
    return node


def _cast(node: exp.Cast) -> exp.Expression:
    to, this = node.to.this, node.this
    if isinstance(this, exp.JSONExtract):  # a text of a document is its letters, without the quotes of JSON
        node.set("this", exp.JSONExtractScalar(this=this.this, expression=this.expression))
    elif to == exp.DType.TEXT and isinstance(this, exp.Column) and this.name.lower() in BYTES:
        return _call("decode", this)
    elif to in WHOLE:  # Spark cuts fractions off, DuckDB rounds
        if isinstance(this, FRACTIONS):
            node.set("this", _call("trunc", this))
        elif not this.find(exp.AggFunc) and not isinstance(this, exp.Literal):
            node.set("this", _call("spark_truncated", this))
    return node


def _variant_get(node: exp.Anonymous) -> exp.Expression:
    """variant_get(document, path, type), the type in words."""
    if len(node.expressions) != 3 or not isinstance(node.expressions[2], exp.Literal):
        raise NeedsSpark(f"{node.name} without a type in words")
    document, path, type = node.expressions
    kind = exp.TryCast if node.name.lower().startswith("try_") else exp.Cast
    text = _call("json_extract_string", document, path)
    return kind(this=text, to=exp.DataType.build(type.name, dialect=DIALECT))


def _div(node: exp.Div) -> exp.Expression:
    """Spark refuses to divide by zero; DuckDB says infinity."""
    below = node.expression
    is_sure = isinstance(below, exp.Nullif) or (isinstance(below, exp.Literal) and float(below.name) != 0)
    if is_sure or isinstance(node.parent, exp.Case | exp.If):
        return node
    zero = exp.EQ(this=below.copy(), expression=exp.Literal.number(0))
    stop = _call("error", exp.Literal.string("division by zero; try_divide gives NULL"))
    return exp.Case(ifs=[exp.If(this=zero, true=stop)], default=node)


def _call(name: str, *arguments: exp.Expression) -> exp.Expression:
    """A function of DuckDB, of which sqlglot need know nothing."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def _first_line(error: SqlglotError) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines()[0]
    return text.strip().rstrip(".")
