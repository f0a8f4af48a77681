"""Where handlers run: in the main thread of a child, in threads, or in an event loop."""
