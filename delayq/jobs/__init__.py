"""What users write: jobs and their handlers, events, notifications; and how they are sent."""
