"""HTTP in a process of its own: REST and the admin API, beside a node that they ask (docs/adr/0019-http-process.md)."""
