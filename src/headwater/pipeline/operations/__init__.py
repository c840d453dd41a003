"""How the fabric does, from what it says of itself, and what it could do better (docs/advice.md)."""
