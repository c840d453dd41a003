"""Which settings of forwards are refused, and what is loaded for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.node.config import Config, ConfigError, load_config
from headwater.node.forwarding.forwards import wishes_of
from headwater.node.forwarding.preparing import prepare_all
from headwater.node.forwarding.settings import ForwardSettings


def made(*forwards: dict[str, Any]) -> Config:
    return Config(data_dir="d", store={"enabled": True}, forward=list(forwards))


def forward(**settings: Any) -> dict[str, Any]:
    return {"name": "cloud", "addresses": ["cloud.example"], **settings}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"filters": ["a/#/b"]}, "no topic filter"),
        ({"filters": []}, "at least 1 item"),
        ({"priorities": ["+a"]}, "no topic filter"),
        ({"priorities": ["a"] * 17}, "at most 16 items"),
        ({"priorities": ["a"], "order": "strict"}, "change the order"),
        ({"remote_prefix": "a/+/"}, "has a wildcard"),
        ({"remote_prefix": "$SYS/x/"}, "each broker's own"),
        ({"qos": 0}, "Input should be 1 or 2"),
        ({"rate": 0}, "greater than 0"),
        ({"max_inflight": 20_000}, "less than or equal to 10000"),
        ({"password": "secret"}, "a password needs a `username`"),
        ({"addresses": ["a:b:c"]}, "has no port from 1 to 65535"),
        ({"name": "a/b"}, "match pattern"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        made(forward(**settings))


def test_no_two_forwards_have_one_name() -> None:
    with pytest.raises(ValueError, match="two forwards are called 'cloud'"):
        made(forward(), forward())


def test_a_store_is_needed() -> None:
    with pytest.raises(ValueError, match="needs a store"):
        Config(forward=[forward()])


def test_a_file_of_settings(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(
        'data_dir = "d"\n[store]\nenabled = true\n[[forward]]\nname = "cloud"\naddresses = "a.example:1 b.example"\n'
        'order = "strict"\nlive_within = 3\n[forward.tls]\nca = "ca.pem"\n'
    )
    [found] = load_config(str(path), {}, {}).forward
    assert [(place.host, place.port) for place in found.places] == [("a.example", 1), ("b.example", 8883)]
    wishes = wishes_of(found)
    assert (wishes.bounds.in_order, wishes.bounds.live_within, wishes.filters) == (True, 3.0, ("#",))


def test_files_are_read_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "password"
    with pytest.raises(ConfigError, match="forward 'cloud': password_file"):
        prepare_all(made(forward(username="u", password_file=str(path))))
    path.write_text("secret\n")
    [found] = prepare_all(made(forward(username="u", password_file=str(path)), forward(name="off", enabled=False)))
    assert found.password == "secret"
    assert "secret" not in repr(found)


def test_each_worker_has_forwards_of_its_own() -> None:
    from headwater.node.workers.parts import LinksFolder, part_of

    config = made(forward(client_id="me", dead_letters="letters")).model_copy(update={"workers": 2})
    parts = [part_of(config, number, LinksFolder(Path("/tmp/l"), "s" * 16, is_temporary=False)) for number in (0, 1)]
    found = [(each.forward[0].name, each.forward[0].client_id, each.forward[0].dead_letters) for each in parts]
    assert found == [("cloud", "me", "letters"), ("cloud-1", "me-1", "letters-1")]


def test_nothing_is_loaded_without_a_forward() -> None:
    code = (
        "import asyncio, sys\n"
        "from headwater.node import Broker, Config\n"
        "async def main():\n"
        "    async with Broker(Config(port=0)):\n"
        "        print(*sys.modules, sep='\\n')\n"
        "asyncio.run(main())\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    loaded = said.stdout.split()
    assert "headwater.node.forwarding.using" in loaded
    assert [each for each in loaded if each.startswith(("headwater.edge.forwarding", "headwater.client"))] == []
    assert "headwater.node.forwarding.forwards" not in loaded


def test_settings_have_a_default_each() -> None:
    assert ForwardSettings(name="a", addresses=["b"]).qos == 1
