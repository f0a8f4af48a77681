"""delayq runs work later and never loses it."""

__version__ = "0.1.0"
