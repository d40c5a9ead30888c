from help_page import page

SAID = """The endpoints of a fabric, by hand.
Usage: softrio [OPTIONS] SUBCOMMAND

Options:
  -h,--help                   Print this help message and exit
  --seed-of-all N:INT in [1 - 9] Excludes: --other
                              of what is "random"

Subcommands:
  list                        the endpoints of the fabric
"""


def test_a_page() -> None:
    assert page("softrio", SAID).split("\n") == [
        '.TH SOFTRIO 1 "" "Incast" "Incast"',
        ".SH NAME",
        "softrio \\- The endpoints of a fabric, by hand",
        ".SH SYNOPSIS",
        ".B softrio [OPTIONS] SUBCOMMAND",
        ".SH OPTIONS",
        ".TP",
        "\\fB\\-h,\\-\\-help\\fR",
        "Print this help message and exit",
        ".TP",
        "\\fB\\-\\-seed\\-of\\-all N:INT in [1 \\- 9] Excludes: \\-\\-other\\fR",
        "of what is \\(dqrandom\\(dq",
        ".SH SUBCOMMANDS",
        ".TP",
        "\\fBlist\\fR",
        "the endpoints of the fabric",
        "",
    ]
