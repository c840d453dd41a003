"""The conditions that a SUBSCRIBE asks for: found in it, read, and kept with what they belong to.

There are two ways to ask: the user property `filter` of a SUBSCRIBE (5.0), which counts for all its topic filters, and
`?` behind a topic filter with the condition behind that. Topic filters are without it everywhere else: the same one
with another condition is the same subscription. `??` stands for a `?` that belongs to the topic filter.

A shared subscription's condition is its group's. The first member says which; whoever names another one is refused, and
a group's only member may change it. Where groups may span nodes no node sees all that a group was sent, so conditions
that remember are refused there.
"""

from __future__ import annotations

from headwater.message import Subscription
from headwater.node.bridge.inside import Inside
from headwater.node.plane.channel import Channel
from headwater.node.protocol.core import Core
from headwater.routing.conditions.condition import ContentCondition, condition_of
from headwater.routing.conditions.errors import ConditionError
from headwater.routing.conditions.written import FILTER_PROPERTY, MARK, parts_of
from headwater.routing.shared import Group
from headwater.wire.packets import Subscribe, SubscribeRequest


class Asked:
    """What one SUBSCRIBE asks for with its user property. `problem`: what is wrong with it, or with another condition
    of this packet, for its reason string; "": nothing."""

    def __init__(self) -> None:
        self.condition: ContentCondition | None = None
        self.is_wrong = False
        self.problem = ""


class Conditioning:
    def __init__(self, core: Core) -> None:
        self.core = core
        self.conditions = core.conditions
        config = core.config
        self.enabled = config.conditions.enabled
        self.may_span = config.cluster.enabled or config.workers > 1

    def counts_for(self, channel: Channel) -> bool:
        """A bridge's topic filters are those of its settings, which have conditions of their own."""
        return self.enabled and not isinstance(channel.entrance, Inside)

    # ---- what is asked for -------------------------------------------------------------------------------------

    def asked(self, packet: Subscribe) -> Asked:
        """By the user property; it is to be asked only where conditions are enabled."""
        asked = Asked()
        pairs = None if packet.properties is None else packet.properties.user_properties
        texts = [value for name, value in pairs or [] if name == FILTER_PROPERTY]
        if len(texts) > 1:
            asked.is_wrong = True
            asked.problem = "more than one user property 'filter'"
        elif texts:
            asked.condition = self._read(texts[0], asked)
            asked.is_wrong = asked.condition is None
        return asked

    def split(self, request: SubscribeRequest, asked: Asked) -> tuple[SubscribeRequest, ContentCondition | None, bool]:
        """The request for the topic filter alone, the condition for it, and whether that is as it should be."""
        if asked.is_wrong:
            return request, None, False
        if MARK not in request.filter:
            return request, asked.condition, True
        name, text = parts_of(request.filter)
        request = SubscribeRequest(
            name, request.qos, request.no_local, request.retain_as_published, request.retain_handling
        )
        if text is None:
            return request, asked.condition, True
        if asked.condition is not None:
            asked.problem = f"a condition in the topic filter and in the user property '{FILTER_PROPERTY}'"
            return request, None, False
        condition = self._read(text, asked)
        return request, condition, condition is not None

    def _read(self, text: str, asked: Asked) -> ContentCondition | None:
        try:
            return condition_of(text)
        except ConditionError as error:
            asked.problem = asked.problem or f"condition: {error}"
            return None

    # ---- shared groups -----------------------------------------------------------------------------------------

    def problem_of(self, session: object, subscription: Subscription) -> str:
        """Why a shared subscription cannot have this condition, or none; "": it can."""
        condition = subscription.condition
        if self.may_span and isinstance(condition, ContentCondition) and condition.remembers:
            return "condition: changed and limit are not for shared subscriptions of a cluster"
        assert subscription.share is not None
        group = self.core.router.groups.get(subscription.share, subscription.filter)
        if group is None or len(group) == 0 or (len(group) == 1 and group.member(session) is not None):
            return ""
        here = None if group.gate is None else group.gate.condition
        if (None if here is None else here.text) == (None if condition is None else condition.text):
            return ""
        return f"condition: the group has {'none' if here is None else here.text}"

    # ---- subscriptions -----------------------------------------------------------------------------------------

    def began(self, subscription: Subscription, old: Subscription | None) -> None:
        """A subscription is about to be routed; `old`: in whose place."""
        if subscription.share is None:
            if old is None:
                self.conditions.adopt(subscription)
            else:
                self.conditions.replace(old, subscription)

    def joined(self, subscription: Subscription) -> None:
        """A shared one is routed: the first member says what the group's condition is, and the only one may change
        it."""
        assert subscription.share is not None
        group = self.core.router.groups.get(subscription.share, subscription.filter)
        if group is None or len(group) != 1:
            return
        old = group.gate
        condition = subscription.condition
        if old is None and condition is None:
            return
        known = None if old is None or old.condition is None else old.condition.text
        if condition is not None and known == condition.text:
            return
        self._open(group)
        if condition is not None:
            gate = Subscription(subscription.filter, share=subscription.share)
            gate.condition = condition
            self.conditions.adopt(gate)
            group.gate = gate
        self.core.router.feed.recipients_changed(subscription.filter)

    def ended(self, subscription: Subscription, group: Group | None) -> None:
        """A subscription is not routed any more; `group`: that it was in."""
        if group is None:
            self.conditions.release(subscription)
        elif len(group) == 0:
            self._open(group)

    def _open(self, group: Group) -> None:
        gate = group.gate
        if gate is not None:
            group.gate = None
            self.conditions.release(gate)
