"""Who is in the cluster: gossip, failure detection, seeds. Without I/O; time and randomness are arguments.

`membership.Membership` is what a node holds. It says what to send where, takes what arrives, and tells of changes:

- `replica`, each node's versioned map and its copies (Scuttlebutt, in chitchat's manner);
- `messages`, the wire form; `bounds`, what a member may make others keep;
- `phi`, `health`, `roster`: who is live, with patience for a slow self (φ accrual, Lifeguard, SWIM);
- `seeds`, where to look first.

docs/adr/0024-membership.md says why it is ours and not a library's.
"""

from __future__ import annotations
