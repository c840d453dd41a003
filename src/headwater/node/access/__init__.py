"""Who may connect, and what they may do there: identities, rules, limits (docs/access.md)."""
