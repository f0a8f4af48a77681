"""The operations of the clients DelayQ and AsyncDelayQ, each written once as a coroutine.

`operations.py` puts the whole class together.
"""
