"""Adapters to libraries that an application may use. They are imported only in programs that use these libraries."""
