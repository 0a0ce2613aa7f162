"""The exception that every command raises for bad input."""


class BadInput(Exception):
    """An input can't be used; the message is one line that names the input and how to mend it."""
