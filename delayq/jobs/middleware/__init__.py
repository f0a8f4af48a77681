"""What surrounds handlers: sync or async, for all jobs or for those of one class or function."""
