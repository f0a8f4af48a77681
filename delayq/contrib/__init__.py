"""Bridges to other libraries. Each module imports one, and is imported by those who use it."""
