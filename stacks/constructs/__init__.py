"""Logical units that the stacks compose: the code bundle, a function, an HTTP API."""
