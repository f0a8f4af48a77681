"""Loops that look after queues: each does one step and says how long it may sleep."""
