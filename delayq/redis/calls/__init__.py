"""Verbs as pure calls: which script, which keys, which arguments, how to read the answer."""
