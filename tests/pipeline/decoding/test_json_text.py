"""Both ways of reading JSON take and refuse the same, and what is kept is read alike by everybody."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.pipeline.decoding import json_text
from headwater.pipeline.decoding.json_text import (
    DEEPEST,
    LONGEST_NAME,
    LONGEST_NUMBER,
    NotJson,
    _strict_loads,
    canonical,
    dump,
    has_key_twice,
    parse,
)

DEEP = b"[" * DEEPEST + b"]" * DEEPEST
TOO_DEEP = b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1)
STRANGE = [
    *(b"", b" ", b"{", b"nul", b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"[1e400]", b"01", b"+1", b".5"),
    *(b"1" * 5000, b"9" * 309, b'"\\ud800"', b'"\\udc00\\ud800"', b'{"\\ud800": 1}', b'"\xed\xa0\x80"', b'"\xff"'),
    *(
        b"\xef\xbb\xbf{}",
        b'"\x00"',
        b"\x00",
        b"{}x",
        b"[1,]",
        b'{"a":1,}',
        b"'a'",
        TOO_DEEP,
        b"[" * 100_000,
        b'{"a":' * 500,
    ),
]
FINE = [
    *(b"{}", b"[]", b"0", b"-0", b"1e308", b"1e-999", b"18446744073709551615", b"18446744073709551616", b"1" * 300),
    *(b'"\\u0000"', b'"\\ud83d\\ude00"', '"é😀"'.encode(), b' {"a" : [1, null, true]}\n', b'{"a":1,"a":2}', DEEP),
    *(b"-9223372036854775808", b"-9223372036854775809", b"0." + b"1" * 3000),
]


@pytest.fixture(params=["orjson", "json"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "json":
        monkeypatch.setattr(json_text, "quick", None)
        monkeypatch.setattr(json_text, "loads", _strict_loads)
    name: str = request.param
    return name


def test_orjson_is_used_where_it_is() -> None:
    assert json_text.loads is json_text.quick.loads


@pytest.mark.parametrize("payload", STRANGE, ids=lambda each: repr(each[:20]))
def test_what_is_no_json_is_refused_in_words(way: str, payload: bytes) -> None:
    with pytest.raises(NotJson, match=r"^(is|has) "):
        parse(payload)


@pytest.mark.parametrize("payload", FINE, ids=lambda each: repr(each[:20]))
def test_both_ways_read_the_same(way: str, payload: bytes) -> None:
    found, expected = parse(payload), orjson.loads(payload)
    assert found == expected and type(found) is type(expected)
    assert orjson.loads(dump(found)) == expected


@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:\\u0d8e19.-+ \n', max_size=40).map(str.encode))
@example(b'{"a":1e5}')
@example(b"-0.0")
def test_the_standard_library_takes_what_orjson_takes(payload: bytes) -> None:
    def found(loads: Any) -> Any:
        try:
            return repr(loads(payload))
        except ValueError:
            return "refused"

    assert found(_strict_loads) == found(json_text.quick.loads)


# ---- keys that come twice ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b'{"a":1,"a":2}', '{"a":2}'),
        (b'{"a" : 1, "\\u0061"\t:2}', '{"a":2}'),
        (b'{"x":{"a":1,"b":[{"c":1,"c":{}}]}}', '{"x":{"a":1,"b":[{"c":{}}]}}'),
        (b'{"a":":","a":"\\":"}', '{"a":"\\":"}'),
        (b'{"a"\n:1,"a":"\\":"}', '{"a":"\\":"}'),  # one colon hides, and one in a string looks like another
        (b'[{"":0,"":0}]', '[{"":0}]'),
    ],
)
def test_a_key_that_comes_twice_is_written_once(way: str, payload: bytes, text: str) -> None:
    assert canonical(payload, parse(payload)) == text


@pytest.mark.parametrize(
    "payload",
    [
        b'{"a":1,"b":2}',
        b' { "a" :\n{"a": {"a" : [ {"a":1} , {"a":1} ]}} } ',
        b'{"a":"\\":","b":":\\"","c":"::"}',
        b'{"at":"2026-11-17T01:51:07Z"}',
        b'{"":""}',
        b'{"\\\\":":","\\"":1}',
        b"12345678901234567890123456789012345",
        b"[]",
    ],
)
def test_other_documents_stay_as_they_came(way: str, payload: bytes) -> None:
    assert canonical(payload, parse(payload)) is None


DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=15,
)


@given(DOCUMENTS, st.sampled_from([None, 0, 3]), st.booleans())
def test_no_document_of_a_dict_has_a_key_twice(document: Any, indent: int | None, escaped: bool) -> None:
    try:
        payload = json.dumps(document, indent=indent, ensure_ascii=escaped).encode()
        parsed = parse(payload)
    except (UnicodeEncodeError, NotJson):
        return
    assert not has_key_twice(payload, parsed)
    assert json.loads(dump(parsed)) == json.loads(payload)


@given(
    st.lists(st.tuples(st.text(max_size=3), st.text(alphabet='":\\ a', max_size=4)), max_size=6),
    st.sampled_from(["", " ", "\n\t"]),
)
def test_keys_that_come_twice_are_always_seen(members: list[tuple[str, str]], space: str) -> None:
    try:
        text = ",".join(f"{json.dumps(key)}{space}:{json.dumps(value)}" for key, value in members)
        payload = f"{{{text}}}".encode()
        document = parse(payload)
    except NotJson:
        return
    assert has_key_twice(payload, document) == (len(document) != len(members))


# ---- numbers and depth ---------------------------------------------------------------------------------------------


def test_a_number_without_end_becomes_a_double(way: str) -> None:
    digits = b"1" * (LONGEST_NUMBER + 10)
    payload = b'{"a":0.%s}' % digits
    assert canonical(payload, parse(payload)) == '{"a":0.1111111111111111}'


def test_a_number_that_is_kept_is_one_that_spark_reads(way: str) -> None:
    """It reads 1000 characters of one."""
    run = b"0" * (LONGEST_NUMBER - 2) + b"1"
    for payload in (b"[1.%se-%s]" % (run, run), b"[%s.%se-%s]" % (b"1" * 309, run, run)):
        kept = canonical(payload, parse(payload)) or payload
        assert len(kept) < 1000
    assert canonical(b"[1.%s0]" % run, parse(b"[1.%s0]" % run)) == "[1.0]"


def test_a_name_that_spark_would_not_read_is_refused(way: str) -> None:
    """It reads 50,000 characters of one."""
    fine, long = ("k" * length for length in (LONGEST_NAME, LONGEST_NAME + 1))
    documents: list[Any] = [{"%s": 1}, {"a": [{"b": {"%s": {}}}]}]
    for document in documents:
        text = json.dumps(document)
        assert parse((text % fine).encode()) == json.loads(text % fine)
        with pytest.raises(NotJson, match="has a name of more than 10000 characters"):
            parse((text % long).encode())


def test_brackets_in_strings_are_not_levels(way: str) -> None:
    payload = json.dumps(["[" * 1000, '\\"[{' * 1000]).encode()
    assert parse(payload) == json.loads(payload)


def test_hostile_texts_are_looked_at_once() -> None:
    """With a way back at each quote or digit these would take hours."""
    with pytest.raises(NotJson):
        parse(b"[" * 300 + b'"' + b'\\"' * 1_000_000)
    long = b'["%s"]' % ((b"7" * (LONGEST_NUMBER - 1) + b"x") * 5000)
    assert canonical(long, parse(long)) is None
