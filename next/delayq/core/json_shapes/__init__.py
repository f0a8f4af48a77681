"""The JSON of the command line, which HTTP and the dashboard return too: one frozen dataclass for each shape.

Members are printed in the order of the fields. A time is in two members: `due_ms` in epoch milliseconds, and `due` as
RFC 3339 text. A member that some answers leave out has a class of its own, because a dataclass prints all its fields.
"""
