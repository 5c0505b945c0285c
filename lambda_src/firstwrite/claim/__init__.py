"""Claims on limited stock: exact to the unit, whatever races, repeats or dies."""
