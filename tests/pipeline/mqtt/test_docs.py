"""The page about format("mqtt") has every option as the code declares it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from headwater.pipeline.mqtt.options import BrokerOptions, ReadOptions, WriteOptions

PAGE = Path(__file__).parents[3] / "docs" / "pipeline-mqtt.md"


def table(kind: type[BrokerOptions]) -> list[str]:
    """Lines of Markdown."""
    lines = ["| option | default | |", "|---|---|---|"]
    for each in dataclasses.fields(kind):
        if each.default is dataclasses.MISSING:
            default = "needed"
        elif each.default is None:
            default = "–"
        else:
            default = f"`{str(each.default).lower()}`"
        lines.append(f"| `{each.metadata['name']}` | {default} | {each.metadata['doc']} |")
    return lines


@pytest.mark.parametrize("kind", [ReadOptions, WriteOptions])
def test_options_are_described_as_they_are(kind: type[BrokerOptions]) -> None:
    assert "\n".join(table(kind)) in PAGE.read_text()
