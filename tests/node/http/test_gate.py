"""Callers of REST that is served by a process of its own: the same holds for them as where it is in the broker's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node.delivery import test_gate
from tests.node.delivery.node import Node

SAME = [
    test_gate.test_users_and_passwords,
    test_gate.test_the_token_of_the_settings,
    test_gate.test_tokens_and_what_they_let_do,
    test_gate.test_rights_end_with_the_token,
    test_gate.test_guards_are_asked,
    test_gate.test_a_guard_of_connections_is_asked,
    test_gate.test_who_fails_too_often_is_banned,
    test_gate.test_wrong_tokens_are_failures_too,
    test_gate.test_a_banned_user_is_not_served_on,
    test_gate.test_connections_of_an_address_are_counted_not_requests,
    test_gate.test_callers_see_what_subscribers_get,
    test_gate.test_reading_takes_both_rights,
    test_gate.test_new_rules_hold_for_what_goes_on,
    test_gate.test_a_user_that_is_gone_is_nobody,
    test_gate.test_what_is_published_is_a_message_like_any_other,
    test_gate.test_a_topic_that_is_not_stored,
    test_gate.test_as_many_topics_as_may_be,
    test_gate.test_filters_of_messages_are_asked,
    test_gate.test_quotas_of_retained_messages_hold,
    test_gate.test_a_refusal_says_nothing_of_its_reasons,
]


@pytest.mark.parametrize("test", SAME, ids=lambda test: test.__name__.removeprefix("test_"))
def test_the_same_in_a_process_of_its_own(
    test: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside").mkdir()
    monkeypatch.setattr(Node, "beside", tmp_path / "beside")
    test(*([tmp_path] if inspect.signature(test).parameters else []))
