"""Decoding: messages of bronze become readings of silver, and what cannot be read goes to quarantine with the reason.

    rules = Rules.from_settings([{"filter": "plant/#", "decoder": "json", "device": "{2}"}])
    readings, quarantined = decode(batch, rules)

Pure Python and pyarrow: Spark's executors import it, and nobody needs Spark to use it. orjson makes it several times
faster, and is used where it is installed; cbor2 is imported when a rule asks for it. Rules and decoders are described
in docs/decoders.md.

There is no decoder for Sparkplug B. The package index has three libraries that read its payloads, and none can be
installed beside Headwater and Spark: mqtt-spb-wrapper pins paho-mqtt 1.6.1 and protobuf 3.20.3, tahu pins protobuf
3.19.1, and pysparkplug, which calls itself pre-alpha, needs paho-mqtt before 2. Who has one in their executors'
environment writes a decoder of ten lines with it (`reading.py` says how); names that only a BIRTH message tells are
state, which a decoder of single messages does not have.
"""

from __future__ import annotations

from headwater.pipeline.decoding.batches import Decoded, decode
from headwater.pipeline.decoding.reading import Message, Reading, Refused
from headwater.pipeline.decoding.rule import SettingsError
from headwater.pipeline.decoding.rules import Limits, Rules

__all__ = ["Decoded", "Limits", "Message", "Reading", "Refused", "Rules", "SettingsError", "decode"]
