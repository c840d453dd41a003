"""Decoding: messages of bronze become readings of silver, and what cannot be read goes to quarantine with the reason.

    rules = Rules.from_settings([{"filter": "plant/#", "decoder": "json", "device": "{2}"}])
    readings, quarantined = decode(batch, rules)

Pure Python and pyarrow: Spark's executors import it, and nobody needs Spark to use it. orjson makes it several times
faster, and is used where it is installed; cbor2 is imported when a rule asks for it. Rules and decoders are described
in docs/decoders.md.

There is no decoder for Sparkplug B. The package index has three libraries that read its payloads: mqtt-spb-wrapper
pins protobuf 3.20.3 and paho-mqtt 1.6.1, tahu pins protobuf 3.19.1, which the packages of Spark Connect exclude; and
pysparkplug calls itself pre-alpha and needs paho-mqtt before 2, which Headwater's own tests exclude. Who has one of
them on their executors writes a decoder of ten lines with it (`reading.py` says how). Names that only a BIRTH message
tells are state, which a decoder of single messages does not have.
"""

from __future__ import annotations

from headwater.pipeline.decoding.batches import COLUMNS, Decoded, decode
from headwater.pipeline.decoding.reading import Message, Reading, Refused
from headwater.pipeline.decoding.rule import SettingsError
from headwater.pipeline.decoding.rules import Limits, Rules

__all__ = ["COLUMNS", "Decoded", "Limits", "Message", "Reading", "Refused", "Rules", "SettingsError", "decode"]
