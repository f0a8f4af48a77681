"""The three ways to run handlers in a child: in the main thread, in other threads, or in an event loop."""
