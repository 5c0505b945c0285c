"""The demo: a stub of a paid API, and the deliberately wrong twins. Never in a production stage."""
