"""The HTTP contract as an OpenAPI document, built from the limits and problems that the functions use."""
