"""The dashboard as a browser without JavaScript sees it."""
