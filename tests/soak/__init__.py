"""Mixed load on a local cloud whose workers, table and paid API fail, and a check of all that came of it."""
