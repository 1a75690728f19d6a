"""What the program says when it will not go on."""


class Refusal(Exception):
    """What was asked for cannot work. The message says what was asked, why it cannot work and what to do; no traceback, exit code 2."""
