"""The project's own measurements: delayq and the bare protocol side by side, on a private server, in one run."""
