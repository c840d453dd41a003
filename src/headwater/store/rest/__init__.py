"""REST over a store (docs/rest.md). Needs FastAPI, uvicorn and orjson; pyarrow only where Arrow is asked for."""
