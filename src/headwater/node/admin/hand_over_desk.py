"""What the admin API may ask and order when this node's delivery store goes to another node: that part of the desk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.node.persistence.folder import MESSAGES
from headwater.store.hand_over import read_fence

if TYPE_CHECKING:
    from headwater.node.broker import Broker
    from headwater.node.delivery.handing_over import HandingOver

OPERATIONS: Final = (
    *("hand_over_state", "begin_hand_over", "copy_for_hand_over", "file_for_hand_over"),
    *("freeze_for_hand_over", "fence_for_hand_over", "release_hand_over"),
)
NONE: Final = "this node has no delivery store on disk"

Fields = dict[str, Any]


class HandOverDesk:
    """Asked on the broker's loop. ValueError says why something is refused, StorageError that the disk failed."""

    broker: Broker

    def hand_over_state(self) -> Fields:
        """Also of a store that was handed over before this process began, and is not open."""
        made = self.broker.handing_over()
        if made is not None:
            return made.state()
        data = self.broker.config.data_dir
        fence = read_fence(Path(data) / MESSAGES) if data else None
        if fence is None:
            raise ValueError(NONE)
        return {"store": fence.store, "hand_over": "", "to": "", "frozen": None, "fence": fence._asdict()}

    def begin_hand_over(self, to: str) -> Fields:
        return self._handing_over().begin(to)

    async def copy_for_hand_over(self, hand_over: str) -> Fields:
        return await self._handing_over().copy(hand_over)

    def file_for_hand_over(self, hand_over: str, name: str) -> str:
        return self._handing_over().file(hand_over, name)

    async def freeze_for_hand_over(self, hand_over: str, seconds: float) -> Fields:
        return await self._handing_over().freeze(hand_over, seconds)

    def fence_for_hand_over(self, hand_over: str, position: int) -> Fields:
        return self._handing_over().fence(hand_over, position)

    async def release_hand_over(self, hand_over: str) -> Fields:
        return await self._handing_over().release(hand_over)

    def _handing_over(self) -> HandingOver:
        made = self.broker.handing_over()
        if made is None:
            raise ValueError(NONE)
        return made
