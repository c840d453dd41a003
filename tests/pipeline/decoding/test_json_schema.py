"""Fields from a JSON Schema, and what does not fit a declared field, rescued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.pipeline.decoding.json_schema import SchemaError, declared_fields
from headwater.pipeline.jobs.settings import SettingsError, make_settings, read_file
from tests.pipeline.decoding.bronze import reading, refusal, rules_of

PRESS = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"site": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
    "type": "object",
    "required": ["temp", "meta", "maybe"],
    "properties": {
        "temp": {"type": "number", "minimum": -40},
        "count": {"type": "integer"},
        "on": {"type": ["boolean", "null"]},
        "maybe": {"type": ["string", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "meta": {"$ref": "#/$defs/site"},
        "spare": {"$ref": "#/$defs/site"},
        "list": {"type": "array"},
        "either": {"type": ["string", "number"]},
        "x.y": {"type": "string"},
    },
}


def put(folder: Path, schema: Any) -> Path:
    path = folder / "press.json"
    path.write_text(json.dumps(schema), encoding="utf-8")
    return path


def test_what_a_column_can_be_is_taken(tmp_path: Path) -> None:
    assert declared_fields(put(tmp_path, PRESS)) == {
        "temp": "double not null",
        "count": "bigint",
        "on": "boolean",
        "maybe": "string",
        "at": "timestamp",
        "meta.name": "string not null",
        "spare.name": "string",
    }


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"properties": {"a": {"$ref": "other.json"}}}, "leads out of the file"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "leads nowhere"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "properties": {"a": {"$ref": "#/$defs/a"}}}, "leads to itself"),
        ({"type": "array"}, "no property of one scalar type"),
        ([1], "no property of one scalar type"),
    ],
)
def test_what_cannot_be_used_is_said(schema: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=words):
        declared_fields(put(tmp_path, schema))


def test_one_that_leads_back_is_cut_at_a_depth(tmp_path: Path) -> None:
    node = {"type": "object", "properties": {"v": {"type": "number"}, "next": {"$ref": "#"}}}
    assert list(declared_fields(put(tmp_path, node))) == [
        "v",
        "next.v",
        "next.next.v",
        "next.next.next.v",
        "next.next.next.next.v",
    ]


def test_it_lies_beside_the_settings_and_its_content_is_the_rule(tmp_path: Path) -> None:
    put(tmp_path, PRESS)
    config = tmp_path / "pipeline.toml"
    config.write_text('[[decoding]]\nfilter = "#"\ndecoder = "json"\nschema = "press.json"\n')
    before = read_file(config)
    assert before.decoding[0]["fields"]["temp"] == "double not null" and "schema" not in before.decoding[0]
    put(tmp_path, {"properties": {"temp": {"type": "number"}}})
    assert read_file(config).rules().said != before.rules().said
    config.write_text('[[decoding]]\ndecoder = "json"\nschema = "nowhere.json"\n')
    with pytest.raises(SettingsError, match=r"nowhere.json: No such file"):
        read_file(config)
    for wrong in (
        {"schema": 3},
        {"schema": "press.json", "mode": "inferred"},
        {"schema": "press.json", "fields": {"a": "double"}},
    ):
        with pytest.raises(ValueError, match="schema"):
            make_settings({"decoding": [{"decoder": "json", **wrong}]}, tmp_path)


RESCUING = {
    "decoder": "json",
    "fields": {"temp": "double", "meta.site": "string", "n": "bigint not null"},
    "misfits": "rescue",
}


def test_what_does_not_fit_is_rescued() -> None:
    rules = rules_of(**RESCUING)
    assert rules.columns["rescued"] == "string"
    row = reading(b'{"temp": "n/a", "meta": {"site": [1]}, "n": 3}', rules)
    assert (row["temp"], row["meta_site"], row["n"]) == (None, None, 3)
    assert json.loads(row["rescued"]) == {"temp": "n/a", "meta.site": [1]}
    assert reading(b'{"temp": 1, "n": 3}', rules)["rescued"] is None
    assert refusal(b'{"temp": "n/a"}', rules) == "field n is missing, and declared not null"
    declared = rules_of(**{**RESCUING, "misfits": "quarantine"})
    assert "declared as double" in refusal(b'{"temp": "n/a", "n": 3}', declared)
    assert "rescued" not in declared.columns


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"decoder": "json", "misfits": "rescue"}, "those of declared fields"),
        ({"decoder": "json", "fields": {"rescued": "string"}, "misfits": "rescue"}, "leave the field away"),
        ({**RESCUING, "misfits": "rescu"}, "did you mean 'rescue'"),
        ({"decoder": "text", "misfits": "rescue"}, "unknown setting 'misfits'"),
    ],
)
def test_rules_that_cannot_be(rule: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rules_of(**rule)
