"""What is asked about a function: the dictionary of faults, numbers read off it, laws, roundings, facts."""
