"""The function under test: what kind of thing it is, how it wants to be called, and the calls."""
