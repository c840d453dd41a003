"""`headwater proxy`: a node of a cluster whose only client is a broker of any make, its home broker."""
