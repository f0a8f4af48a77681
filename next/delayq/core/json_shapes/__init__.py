"""The JSON of the command line. Each kind of answer is one frozen dataclass, a shape.

Members are printed in the order of the fields. A time is in two members: `due_ms` in epoch milliseconds, and `due` as
RFC 3339 text. Answers that have an additional member have a class of their own, because a dataclass prints all its
fields.
"""
