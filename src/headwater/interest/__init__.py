"""Interest filters: what a broker's clients subscribe to, in a few bytes a filter, for other brokers to ask.

A PUBLISH has to cross to another broker only if somebody there wants it. Sets of filters are large, so what travels is
a Bloom filter of them: it may say yes where nobody wants a topic (the message crosses and is dropped there), and never
no where somebody does. Bloom filters know equality only; how to find filters with wildcards in one is what the methods
here differ in (`methods`): `bf` and `bfp`, which others had; `prefix`, of the paper; each as published and mended; and
`summary`, ours and the default.

Source: Banno and Watanabe, "Managing Wildcard Topics by Bloom Filter in Distributed MQTT Brokers" (in Japanese).
"""

from __future__ import annotations
