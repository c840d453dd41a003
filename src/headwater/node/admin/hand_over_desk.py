"""What the admin API may ask and order when this node's delivery store goes to another node: that part of the desk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.node.persistence.folder import MESSAGES
from headwater.store.hand_over import read_fence

if TYPE_CHECKING:
    from headwater.node.delivery.handing_over import HandingOver

OPERATIONS: Final = (
    *("hand_over_state", "begin_hand_over", "copy_for_hand_over", "file_for_hand_over"),
    *("freeze_for_hand_over", "fence_for_hand_over", "release_hand_over"),
)
NONE: Final = "this node has no delivery store on disk"

Fields = dict[str, Any]


class HandOverDesk:
    """Asked on the broker's loop. ValueError says why something is refused, StorageError that the disk failed."""

    def handing_over(self) -> HandingOver | None:
        """None: there is no store, as with workers."""
        return None

    def data_dir(self) -> str:
        return ""

    def hand_over_state(self) -> Fields:
        """Also of a store that was handed over before this process began, and is not open."""
        made = self.handing_over()
        if made is not None:
            return made.state()
        data = self.data_dir()
        fence = read_fence(Path(data) / MESSAGES) if data else None
        if fence is None:
            raise ValueError(NONE)
        return {"store": fence.store, "hand_over": "", "to": "", "frozen": None, "fence": fence._asdict()}

    def begin_hand_over(self, to: str) -> Fields:
        return self._one().begin(to)

    async def copy_for_hand_over(self, hand_over: str) -> Fields:
        return await self._one().copy(hand_over)

    def file_for_hand_over(self, hand_over: str, name: str) -> str:
        return self._one().file(hand_over, name)

    async def freeze_for_hand_over(self, hand_over: str, seconds: float) -> Fields:
        return await self._one().freeze(hand_over, seconds)

    def fence_for_hand_over(self, hand_over: str, position: int) -> Fields:
        return self._one().fence(hand_over, position)

    async def release_hand_over(self, hand_over: str) -> Fields:
        return await self._one().release(hand_over)

    def _one(self) -> HandingOver:
        made = self.handing_over()
        if made is None:
            raise ValueError(NONE)
        return made
