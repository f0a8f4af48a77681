"""Read the settings from options, environment variables and the settings file."""
