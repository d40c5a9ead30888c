"""What goes wrong for a plain reason: one line for the person, and the status to exit with."""

EXIT_ABORTED = 130
EXIT_BAD_CONFIG = 2
EXIT_INCOMPLETE = 5  # more events than run.fail_above_incomplete allows are incomplete; there is a result
EXIT_NO_ENGINE = 127
EXIT_PROTOCOL = 70  # EX_SOFTWARE of sysexits.h: the engine broke its promise, the person did nothing wrong


class OneLineError(Exception):
    """One line for the person, and the status to exit with."""

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status
