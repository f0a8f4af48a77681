"""Every operation of the clients, written once as a coroutine. `operations.py` has the whole class."""
