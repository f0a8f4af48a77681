"""Support for libraries that an application may use with delayq. delayq itself does not need these libraries."""
