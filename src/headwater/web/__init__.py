"""HTTP on sockets for whoever has an ASGI application: REST over a store, the admin API. Needs uvicorn."""
