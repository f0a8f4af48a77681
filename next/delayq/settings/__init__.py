"""Settings: what holds when a call says nothing."""
