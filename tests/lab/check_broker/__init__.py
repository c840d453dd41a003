"""The checker of brokers."""
