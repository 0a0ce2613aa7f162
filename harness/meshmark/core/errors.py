"""What every command raises for bad input."""


class BadInput(Exception):
    """Something that was named can't be used; the message is one line that names it and the mend."""
