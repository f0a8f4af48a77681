"""Commands of these tests run in this process too."""

from tests.cli.conftest import logging_as_it_was

__all__ = ["logging_as_it_was"]
