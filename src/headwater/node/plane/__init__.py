"""The data plane: sockets, the turns in which they are served, and what waits to be sent."""
