"""Conditions on the content of messages, which subscriptions may carry: the language and its evaluation."""
