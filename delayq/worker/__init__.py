"""The worker: a supervisor in which no user code runs, and its children, which fetch, run and settle."""
