"""The HTTP door: API, health, dashboard and metrics in one ASGI application. Needs the extra `http`."""
