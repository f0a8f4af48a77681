"""The reading side of an outbox: what is written there is taken in batches and sent.

store       the table: claims batches, gives one at a time, settles it
judging     which rows go together, and which must not go at all
database    the engine, and what went wrong with it
alone       one relay at a time, where the database cannot lock rows
relay       the role that does it for ever
"""
