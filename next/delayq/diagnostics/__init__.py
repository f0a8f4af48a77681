"""Findings about jobs and servers, as sentences. Pure: the facts are gathered elsewhere."""
