"""What happened, who listens, and listeners that run as jobs."""
