"""How fast regard is on this machine, beside others: ``make bench``.

problems.toml says what is timed and why, `peers` how each library is asked, `rounds` and `race` how it is timed,
`ceilings` what the machine gives at most, `report` and `compare` what is shown.
"""
