"""A Django application with one table, for tests of models in jobs."""
