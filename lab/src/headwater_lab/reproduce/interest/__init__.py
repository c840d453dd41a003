"""How many questions a Bloom filter of topic filters is asked for one published topic, by method (figures 4 to 7).

Source: Banno and Watanabe, "Managing Wildcard Topics by Bloom Filter in Distributed MQTT Brokers" (in Japanese).
"""
