"""Small changes to the heart of the code, each of which some test must notice."""
