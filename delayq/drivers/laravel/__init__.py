"""Laravel's own queues: its payload, its objects, and its queues on Redis."""
