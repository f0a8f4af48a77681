"""The embedded server: a Valkey or Redis that delayq starts itself when no url is set."""
