"""Settings: every key from a file, flags over the file, and errors that say what to do."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import Field, SecretStr, ValidationError

from headwater.node.config import NEEDS_RESTART, RELOADABLE, Admin, Config, ConfigError, load_config
from headwater.node.settings import Settings, leaves, load, parse_assignment, rows_of, value_of
from headwater.node.toml_text import effective, template, toml_value
from headwater.node.transports.settings import ListenerSettings

ROOT = Path(__file__).parent.parent.parent
TOKEN = "a-token-of-sixteen"
LEAVES = {name: field for name, field in leaves(Config) if rows_of(field.annotation) is None}
OTHER: dict[str, Any] = {
    "shared_dispatcher": "random",
    "shared_dispatchers": {"$share/+/jobs/#": "random"},
    "shared_weights": {"w*": 50},
    "log_to": ["syslog", "file:/tmp/x.log"],
    "admin.token": SecretStr(TOKEN),
    "access.jwt_algorithms": ["ES384"],
    "access.ban_exempt": ["10.0.0.0/8"],
    "access.client_id_pattern": "%u/*",
    "store.filters": ["a/+", "$x/#"],
    "store.time_paths": ["data.time"],
    "store.value_paths": ["data.value"],
    "workers": 5,
    "disk_reserve": 5000,
    "store.keep_for": 60.5,
    "store.keep_bytes": 5000,
    "store.hard_keep_for": 60.5,
    "store.hard_keep_bytes": 5000,
    "store.history.url": "file:///other",
    "store.history.options": {"AWS_REGION": SecretStr("eu-north-1")},
    "store.cache_bytes": 1 << 21,
    "rest.token": SecretStr(TOKEN),
    "rest.peer_token": SecretStr(TOKEN),
    "rest.trusted_proxies": ["10.0.0.0/8"],
    "admin.trusted_proxies": ["10.0.0.0/8"],
    "cluster.join": ["10.0.0.1:11883", "node-b"],
    "cluster.neighbours": ["b", "c"],
    "cluster.subscribe_wait": 0.5,
    "cluster.max_spool": 1 << 21,
    "cluster.link_buffer": 1 << 21,
    "cluster.heartbeat": 0.5,
    "cluster.patience": 50.0,
    "cluster.will_after": 20.0,
    "cluster.session_wait": 5.0,
    "cluster.catch_up_wait": 20.0,
    "cluster.secret": SecretStr(TOKEN),
    "edge.roles": ["receiving"],
    "edge.owns": ["plant/#", "+/x"],
    "edge.hold": 0.5,
    "edge.rest": "https://edge.example:8443",
    "proxy.listen": ["1884", "*:1885"],
    "proxy.password": SecretStr(TOKEN),
    **dict.fromkeys(("cluster.tls.certificate", "cluster.tls.key", "cluster.tls.ca"), "other"),
}
CLUSTER_TLS = {"cluster.tls.certificate": "certificate", "cluster.tls.key": "key", "cluster.tls.ca": "ca"}
NEEDS: dict[str, dict[str, Any]] = {
    "admin.enabled": {"admin.token": TOKEN},
    "store.enabled": {"data_dir": "data"},
    "rest.enabled": {"store.enabled": True, "data_dir": "data"},
    "rest.certificate": {"rest.key": "key"},
    "rest.key": {"rest.certificate": "certificate"},
    "cluster.tls.certificate": {"cluster.tls.key": "key", "cluster.tls.ca": "ca"},
    "cluster.tls.key": {"cluster.tls.certificate": "certificate", "cluster.tls.ca": "ca"},
    "cluster.tls.ca": {"cluster.tls.certificate": "certificate", "cluster.tls.key": "key"},
    "cluster.tls.crl": CLUSTER_TLS,
    "cluster.tls.minimum_version": CLUSTER_TLS,
    "cluster.tls.identity": CLUSTER_TLS,
    "edge.follow_advice": {"advice.enabled": True},
    "edge.name": {"cluster.name": "c", "edge.roles": ["receiving"]},
    "proxy.broker": {"cluster.name": "c"},
    "proxy.password": {"proxy.username": "u"},
    "proxy.password_file": {"proxy.username": "u"},
    "proxy.tls.certificate": {"proxy.tls.key": "key"},
    "proxy.tls.key": {"proxy.tls.certificate": "certificate"},
}
"""Settings that do not come alone."""


def other_value(name: str) -> Any:
    """A valid value of a setting that is not its default."""
    field = LEAVES[name]
    default = field.get_default(call_default_factory=True)
    if name in OTHER:
        return OTHER[name]
    if get_origin(field.annotation) is Literal:
        return next(value for value in get_args(field.annotation) if value != default)
    if default is None and str in get_args(field.annotation):
        return "other"
    if default is None or isinstance(default, bool):
        return not default
    return "other" if isinstance(default, str) else 5000


def written(folder: Path, text: str) -> str:
    path = folder / "broker.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def in_file(settings: dict[str, Any]) -> str:
    """Dotted names are what TOML calls dotted keys."""
    return "".join(f"{name} = {toml_value(value)}\n" for name, value in settings.items())


def changed(config: Config) -> set[str]:
    """What is neither unset nor its default, also in a table that is not there by default."""
    usual = {name: (value_of(Config(), name), field.get_default()) for name, field in LEAVES.items()}
    return {name for name in LEAVES if value_of(config, name) not in usual[name]}


@pytest.mark.parametrize("name", LEAVES)
def test_each_setting_can_be_read_from_a_file(name: str, tmp_path: Path) -> None:
    value, others = other_value(name), NEEDS.get(name, {})
    config = load_config(written(tmp_path, in_file({name: value, **others})), {}, {})
    assert value_of(config, name) == value
    assert changed(config) == {name, *others}


@pytest.mark.parametrize("name", LEAVES)
def test_each_setting_can_be_given_by_environment_and_flag(name: str) -> None:
    value, others = other_value(name), NEEDS.get(name, {})
    secret = value.get_secret_value() if isinstance(value, SecretStr) else value
    text = secret if isinstance(secret, str) else toml_value(secret)
    variable = "HEADWATER_" + name.upper().replace(".", "__")
    for config in (
        load_config(None, others, {variable: text}),
        load_config(None, dict([parse_assignment(Config, f"{name}={text}")]) | others, {}),
    ):
        assert value_of(config, name) == value
        assert changed(config) == {name, *others}


def test_flags_win_over_the_file_and_those_not_given_do_not(tmp_path: Path) -> None:
    path = written(tmp_path, 'port = 1\nhost = "h"\n')
    assert load_config(path, {"port": 2, "host": None}).model_dump(include={"port", "host"}) == {"port": 2, "host": "h"}
    assert load_config(None, {}, {}) == Config()


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, 'port = 1\nmax_qos = 1\nmax_inflight = 1\n[admin]\nport = 1\nhost = "file"\n')
    environment = {"HEADWATER_PORT": "2", "HEADWATER_MAX_QOS": "0", "HEADWATER_ADMIN__PORT": "2", "OTHER_PORT": "9"}
    loaded = load(Config, path, environment, {"port": 3})
    config = loaded.settings
    assert (config.port, config.max_qos, config.max_inflight) == (3, 0, 1)
    assert (config.admin.port, config.admin.host) == (2, "file")
    assert {name: loaded.origins.get(name) for name in ("port", "max_qos", "max_inflight", "admin.port", "host")} == {
        "port": "command line",
        "max_qos": "environment HEADWATER_MAX_QOS",
        "max_inflight": path,
        "admin.port": "environment HEADWATER_ADMIN__PORT",
        "host": None,
    }


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("HEADWATER_PROT", "did you mean HEADWATER_PORT?"),
        ("HEADWATER_ADMIN__PROT", "did you mean HEADWATER_ADMIN__PORT?"),
        ("HEADWATER_MAX_CONECTIONS", "did you mean HEADWATER_MAX_CONNECTIONS?"),
        ("HEADWATER_ADMIN__ZZZZZZZZ", "no such setting"),
        ("HEADWATER_PORT", "setting 'port' (from the environment HEADWATER_PORT)"),
    ],
)
def test_a_mistake_in_the_environment_is_said(variable: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {}, {variable: "tcp://10.0.0.1:1883"})
    assert variable in str(caught.value) and said in str(caught.value)


def test_variables_of_others_that_begin_like_ours_are_passed_over() -> None:
    strange = {"HEADWATER_SERVICE_HOST": "10.0.0.1", "HEADWATER_PORT_1883_TCP_ADDR": "10.0.0.1", "HEADWATER_PURE": "1"}
    assert load_config(None, {}, strange) == Config()


@pytest.mark.parametrize(
    ("text", "said"), [("port", "NAME=VALUE"), ("=1", "NAME=VALUE"), ("prot=1", "did you mean 'p")]
)
def test_a_flag_that_is_no_setting(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, dict([parse_assignment(Config, text)]), {})
    assert said in str(caught.value)


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
        ("[admin]\nprot = 1", ["unknown setting 'admin.prot'", "did you mean 'port'?"]),
        ("admin = 5", ["setting 'admin'"]),
        ('log_to = ["printer"]', ["setting 'log_to'", "'printer' is none of stderr"]),
        ("[admin]\nenabled = true", ["setting 'admin'", "needs either `token` or `token_file`"]),
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


class Row(Settings):
    name: str = Field(description="A name.")
    tags: list[str] = Field(default=[], description="Tags.")


class Tables(Settings):
    rows: list[Row] = Field(default=[], description="Rows.")
    named: dict[str, Row] = Field(default={}, description="Rows by name.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rows]]\nnam = 1", "unknown setting 'rows.0.nam'; did you mean 'name'?"),
        ("[named.a]\nnam = 1", "unknown setting 'named.a.nam'; did you mean 'name'?"),
        ("[[rows]]\nname = 1", "setting 'rows.0.name': Input should be a valid string (got 1)"),
    ],
)
def test_mistakes_in_rows_are_said_too(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Tables, written(tmp_path, text), {}, {})
    assert said in str(caught.value).splitlines()


@pytest.mark.parametrize("token", ["short-but-secret", "secret\u00e4" * 9, 17])
def test_secrets_are_not_repeated(token: Any, tmp_path: Path) -> None:
    for text in (in_file({"admin.token": token, "admin.enabled": "perhaps"}), in_file({"admin.token": token})):
        try:
            config = load_config(written(tmp_path, text), {}, {})
        except ConfigError as error:
            said = str(error)
        else:
            said = repr(config) + effective(config, {})
        assert str(token) not in said


def test_the_template_says_every_default(tmp_path: Path) -> None:
    text = template(Config)
    assert load_config(written(tmp_path, text), {}, {}) == Config(), "as it is, it changes nothing"
    stated, in_row = [], False
    for line in text.splitlines():
        in_row = line.startswith("# [") or (in_row and not line.startswith("["))
        # What has no default stands there without a value; rows and their tables are examples.
        if not (in_row or line.startswith("##") or line.endswith(" =")):
            stated.append(line.removeprefix("# "))
    said = tomllib.loads("\n".join(stated))
    for name, field in LEAVES.items():
        value: Any = said
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if name.startswith(("cluster.tls.", "proxy.tls.")):  # what is not there by default is an example, too
            continue
        default = field.get_default(call_default_factory=True)
        assert value == (None if isinstance(default, SecretStr) else default), name


def test_what_is_in_force_can_be_read_again(tmp_path: Path) -> None:
    config = Config(
        port=5,
        shared_weights={"a b": 3},
        log_to=["file:/a\nb"],
        admin=Admin(token=SecretStr(TOKEN)),
        listeners=[ListenerSettings(port=7)],
    )
    text = effective(config, {"port": "command line"})
    assert "port = 5  # command line" in text.splitlines()
    assert TOKEN not in text and "# token is set, and not shown" in text
    again = load_config(written(tmp_path, text), {"admin.token": TOKEN}, {})
    assert again == config


def test_what_can_be_reloaded_exists() -> None:
    assert (RELOADABLE | NEEDS_RESTART) - Config.model_fields.keys() - dict(leaves(Config)).keys() == set()


# ---- docs/limits.md ----


def limits() -> list[list[str]]:
    lines = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


@pytest.mark.parametrize("name", [name for name in LEAVES if not name.startswith("log_")])
def test_each_setting_stands_among_the_limits(name: str) -> None:
    """By its own name or by that of its table."""
    wanted = {f"`{name}`", f"`{name.partition('.')[0]}`"}
    assert any(each in setting for _, _, setting, _, _ in limits() for each in wanted)


def test_defaults_among_the_limits_are_true() -> None:
    checked = 0
    for _, default, setting, _, _ in limits():
        if default.startswith("`") and setting:
            said = default.split("`")[1::2]
            for number, name in enumerate(setting.split("`")[1::2]):  # one default for all, or one for each
                expected = json.dumps(value_of(Config(), name))
                assert said[min(number, len(said) - 1)] == expected, name
                checked += 1
    assert checked > 20


@pytest.mark.parametrize(
    "text",
    ["port = true", "max_qos = true", "connect_timeout = false", "[admin]\nport = true", "[[listeners]]\nport = true"],
)
def test_truth_is_no_number(text: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"a number is needed"):
        load_config(str(file), {}, {})
