"""A check in a process of its own, which survives what the function does."""
