"""The real protocols under every schedule: an engine, an explorer, what must hold, and twins that must not pass."""
