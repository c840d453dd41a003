"""Which proxy's broker has whose session; no I/O, time is an argument (node/proxy/leading has the sockets)."""
