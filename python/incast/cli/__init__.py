"""The command `incast`, from its first moment: everything else is imported behind that."""

import signal


def main() -> None:
    """Runs the command line."""
    python_has_it = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if python_has_it:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is begun yet: Ctrl-C ends it without a word
    from incast.cli.commands import run_command_line

    if python_has_it:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command_line()
