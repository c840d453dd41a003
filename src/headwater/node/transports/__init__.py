"""What lies between a channel and the network: listeners, TLS, WebSocket, the PROXY protocol (docs/transports.md)."""
