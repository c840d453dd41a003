"""Settings: every key from a file, flags over the file, and errors that say what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import ValidationError

from headwater.node.config import Config, ConfigError, load_config

ROOT = Path(__file__).parent.parent.parent


def other_value(name: str) -> Any:
    """A valid value of a setting that is not its default."""
    field = Config.model_fields[name]
    if get_origin(field.annotation) is Literal:
        return next(value for value in get_args(field.annotation) if value != field.default)
    if field.default is None or isinstance(field.default, bool):
        return not field.default
    if isinstance(field.default, str):
        return "random" if name == "shared_dispatcher" else "other"
    if name == "shared_dispatchers":
        return {"$share/+/jobs/#": "random"}
    return {"w*": 50} if isinstance(field.default, dict) else 5000


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {json.dumps(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def written(folder: Path, text: str) -> str:
    path = folder / "broker.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", Config.model_fields)
def test_each_setting_can_be_read_from_a_file(name: str, tmp_path: Path) -> None:
    value = other_value(name)
    config = load_config(written(tmp_path, f"{name} = {toml(value)}\n"), {})
    assert getattr(config, name) == value != getattr(Config(), name)
    assert config.model_dump(exclude={name}) == Config().model_dump(exclude={name})


def test_flags_win_over_the_file_and_those_not_given_do_not(tmp_path: Path) -> None:
    path = written(tmp_path, 'port = 1\nhost = "h"\n')
    assert load_config(path, {"port": 2, "host": None}).model_dump(include={"port", "host"}) == {"port": 2, "host": "h"}
    assert load_config(None, {}) == Config()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("max_conections = 5", ["unknown setting 'max_conections'", "did you mean 'max_connections'?"]),
        ("zzzzzz = 5", ["unknown setting 'zzzzzz'"]),
        ("[limits]\nport = 1", ["unknown setting 'limits'"]),
        ("port = 70000", ["setting 'port'", "65535", "got 70000"]),
        ('port = "many"', ["setting 'port'", "got 'many'"]),
        ('queue_full = "explode"', ["setting 'queue_full'", "drop_newest", "drop_oldest", "disconnect"]),
        ("max_qos = 3", ["setting 'max_qos'", "got 3"]),
        ("connect_timeout = 0", ["setting 'connect_timeout'", "greater than 0"]),
        ('shared_dispatcher = "fair"', ["setting 'shared_dispatcher'", "round_robin"]),
        ('shared_weights = {"a*" = 100, b = 101}', ["setting 'shared_weights'", "weight of 'b'", "1 to 100"]),
        ('shared_weights = {"a*" = 0.5}', ["setting 'shared_weights.a*'", "got 0.5"]),
        ("port = ", ["is not valid TOML"]),
    ],
)
def test_what_is_wrong_is_said(text: str, parts: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, text), {})
    for part in parts:
        assert part in str(caught.value)


def test_all_mistakes_are_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, "port = -1\nmax_qos = 9\nmax_packt_size = 1\n"), {})
    assert len(str(caught.value).splitlines()) == 3


def test_a_suggestion_only_where_one_is_close(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, "zzzzzz = 5"), {})
    assert "did you mean" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        load_config(str(tmp_path / "none.toml"), {})
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_config(str(path), {})


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValidationError):
        Config().port = 5


# ---- docs/limits.md ----


def limits() -> list[list[str]]:
    lines = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


@pytest.mark.parametrize("name", [name for name in Config.model_fields if name != "log_level"])
def test_each_setting_stands_among_the_limits(name: str) -> None:
    assert any(f"`{name}`" in setting for _, _, setting, _, _ in limits())


def test_defaults_among_the_limits_are_true() -> None:
    checked = 0
    for _, default, setting, _, _ in limits():
        if default.startswith("`") and setting:
            expected = getattr(Config(), setting.strip("`"))
            assert default.split("`")[1] == json.dumps(expected), setting
            checked += 1
    assert checked > 20
