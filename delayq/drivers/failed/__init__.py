"""Where failed jobs are kept that their backend does not keep itself: stores behind one protocol, `failed_store`."""
