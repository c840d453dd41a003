"""Where stores are: the addresses that were given, and those in a file that may change while a query runs."""

from __future__ import annotations

import logging

from headwater.pipeline.options import OptionError
from headwater.pipeline.source.settings import Settings

log = logging.getLogger(__name__)


class Addresses:
    """A file that is away for a moment changes nothing."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._last: list[str] | None = None

    def now(self) -> list[str]:
        """OptionError: the file cannot be read at first."""
        try:
            self._last = self.settings.addresses()
        except (OSError, UnicodeDecodeError) as error:
            why = f"the file of addresses {self.settings.urls_file} cannot be read: {error}"
            if self._last is None:
                raise OptionError(why) from None
            log.warning("%s; those from before are used", why)
        return self._last
