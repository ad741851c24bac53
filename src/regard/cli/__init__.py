"""The command ``regard``; each of its commands calls the library and prints what it says."""
