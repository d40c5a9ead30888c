"""Words for people."""


def counted(number: int, what: str) -> str:
    """`1 event`, `2 events`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
