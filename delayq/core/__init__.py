"""Pure: no I/O, no clock, no client. Everything else stands on this package."""
