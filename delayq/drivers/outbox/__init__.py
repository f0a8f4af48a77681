"""The transactional outbox: jobs written to a table in the sender's own transaction, for a relay to send."""
