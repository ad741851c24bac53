"""Cases, what is right, what each fault answers, and what counts as equal."""
