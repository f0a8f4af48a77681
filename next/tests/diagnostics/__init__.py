"""Reasons and findings."""
