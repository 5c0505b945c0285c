"""What several kinds of test need: an atomic engine, tables, clocks, faults, requests."""
