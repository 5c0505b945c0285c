"""A single-flight cache in front of paid APIs: one caller fetches, everybody gets the result."""
