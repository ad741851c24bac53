"""What is reported of one fault: evidence, the smallest example, a program that shows it."""
