"""The report of a check, and the questions that it answers, for people and JUnit."""
