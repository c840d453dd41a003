"""Properties of MQTT 5 as JSON and back, and positions that a broker told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client import Properties
from headwater.pipeline.mqtt.properties import as_json, from_json, take_position

text = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    st.builds(
        Properties,
        content_type=st.none() | text,
        response_topic=st.none() | text,
        correlation_data=st.none() | st.binary(),
        payload_format_indicator=st.none() | st.integers(0, 1),
        user_properties=st.none() | st.lists(st.tuples(text, text), min_size=1),
        message_expiry_interval=st.none() | st.integers(0, 2**32 - 1),
    )
)
def test_what_travels_with_a_message_goes_there_and_back(properties: Properties) -> None:
    assert from_json(as_json(properties)) == properties


def test_no_properties_are_no_text() -> None:
    assert as_json(Properties()) == ""
    assert from_json("") == from_json(None) == from_json("{}") == Properties()


def test_user_properties_may_be_an_object() -> None:
    assert from_json('{"user": {"unit": "K"}}').user_properties == [("unit", "K")]


@pytest.mark.parametrize(
    ("json", "said"),
    [
        ("[1]", "a JSON object"),
        ('{"colour": 1}', "unknown property 'colour'; there are content_type"),
        ('{"user": [["a"]]}', "a list of pairs"),
        ('{"user": "a"}', "a list of pairs"),
        ('{"content_type": 5}', "content_type is text, not 5"),
        ('{"correlation_data": "%%"}', "base64"),
    ],
)
def test_what_is_wrong_is_said(json: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_json(json)


def test_a_position_is_taken_out_of_the_user_properties() -> None:
    properties = Properties(user_properties=[("a", "b"), ("headwater-position", "4f1c:1042")])
    assert take_position(properties) == ("4f1c", 1042)
    assert properties.user_properties == [("a", "b")]
    assert take_position(properties) is None


@pytest.mark.parametrize("value", ["", "5", ":5", "a:", "a:-1", "a:x", "a:٣", f"{'s' * 256}:1", "a:" + "9" * 30])
def test_text_that_is_no_position_stays_where_it_is(value: str) -> None:
    properties = Properties(user_properties=[("headwater-position", value)])
    assert take_position(properties) is None
    assert properties.user_properties == [("headwater-position", value)]
