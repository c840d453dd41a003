"""Who takes part in an episode: every kind of client, in both protocol versions."""

from __future__ import annotations

from headwater.wire.packets import V5, V311
from headwater_lab.chaos.publisher import Publisher
from headwater_lab.chaos.subscriber import Churner, Subscriber
from headwater_lab.chaos.visitors import DELAY, Expirer, Prober, Restarter, Testator
from headwater_lab.chaos.world import World

EVENTS = [f"events/{number}" for number in range(3)]
JOBS = [f"jobs/{number}" for number in range(3)]
CHURN = [f"churn/{number}" for number in range(4)]
KEPT = [f"kept/{number}" for number in range(6)]


def populate(world: World) -> None:
    world.clients += [
        Publisher(world, "pub-events-3", V311, EVENTS, 200),
        Publisher(world, "pub-events-5", V5, EVENTS, 200),
        Publisher(world, "pub-jobs", V5, JOBS, 200),
        Publisher(world, "pub-churn", V311, CHURN + EVENTS[:1], 200),
        Publisher(world, "pub-kept-3", V311, KEPT[:3], 40, retains=True),
        Publisher(world, "pub-kept-5", V5, KEPT[3:], 40, retains=True),
        Subscriber(world, "sub-all-1", V311, {"events/#": 1}),
        Subscriber(world, "sub-all-2", V5, {"events/#": 2}, window=5),
        Subscriber(world, "sub-each", V311, dict.fromkeys(EVENTS, 2)),
        Subscriber(world, "sub-away-1", V5, {"events/+": 1}, lives_away=10),
        Subscriber(world, "sub-away-2", V311, {"events/0": 2, "churn/#": 2}, lives_away=10),
        Subscriber(world, "sub-kept", V5, {"kept/#": 2}, window=20),
        Subscriber(world, "sub-wills-2", V5, {"wills/#": 2}, lives_away=3),
        Subscriber(world, "sub-wills-1", V311, {"wills/#": 1}),
        Subscriber(world, "member-1", V5, {"$share/crew/jobs/#": 2}, window=10, lives_away=2),
        Subscriber(world, "member-2", V311, {"$share/crew/jobs/#": 2}),
        Subscriber(world, "member-3", V5, {"$share/crew/jobs/#": 1}, lives_away=5),
        Churner(world, "churn-3", V311, dict.fromkeys(CHURN, 1)),
        Churner(world, "churn-5", V5, dict.fromkeys(CHURN, 2)),
        Churner(world, "member-churn", V5, {"$share/crew/jobs/#": 2}),
        Restarter(world, "restart-3", V311, {"events/1": 2}),
        Restarter(world, "restart-5", V5, {"events/1": 1, "churn/1": 2}),
        Expirer(world, "expire", V5, {"events/2": 2}, expiry=2),
        Testator(world, "will-3", V311, "wills/3", 0),
        Testator(world, "will-5", V5, "wills/5", 0),
        Testator(world, "will-lasting", V5, "wills/lasting", 100),
        Testator(world, "will-delayed", V5, "wills/delayed", 100, delay=DELAY),
        Testator(world, "will-late", V5, "wills/late", 100, delay=1),
        Prober(world, "probe-3", V311, "kept/#"),
        Prober(world, "probe-5", V5, "kept/#"),
    ]
