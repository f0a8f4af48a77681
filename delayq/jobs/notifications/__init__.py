"""Messages to people and programs, one job for each recipient and channel."""
