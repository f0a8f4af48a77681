"""Moves waiting jobs from one connection to another, while both are in use."""
