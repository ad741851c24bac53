"""What the pages show, computed from the library: a function per picture or table, called by `_ext/computed.py`."""
