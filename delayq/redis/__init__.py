"""The engine: keys, scripts, calls, and the clients that send them."""
