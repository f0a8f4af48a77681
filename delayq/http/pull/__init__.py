"""Deliveries for services that have no Redis client: reserved over HTTP, and settled over HTTP."""
