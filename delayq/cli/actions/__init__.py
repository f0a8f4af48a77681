"""What the commands do. Everything heavy is imported here, and only when a command is called."""
