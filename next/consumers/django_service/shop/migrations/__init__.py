"""The database migrations of the shop."""
