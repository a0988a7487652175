"""Proof that nothing else changed: the same imports with and without us, compared attribute by attribute."""
