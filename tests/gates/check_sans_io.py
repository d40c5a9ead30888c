"""The sans-IO gate: the undefined symbols of the protocol library against an allow-list.

A clock, a thread, a socket, a file or a random device in src/protocol (or in what it is built on: base, wire) would
need a symbol that is not on the list. New entries need a reason: they must be pure computation or memory.
"""

import re
import subprocess
import sys

ALLOWED = [
    r"incast::",  # the project's own, checked library by library
    r"(typeinfo|vtable) for (incast::|__cxxabiv1::)",
    r"operator (new|delete)",  # at start-up; tests prove that none follows
    r"std::__throw_",
    r"std::__cxx11::(basic_string|to_string)",
    r"std::(allocator|char_traits|exception|bad_alloc|bad_variant_access|length_error|terminate)",
    r"(typeinfo|vtable) for std::(exception|bad_variant_access|bad_alloc)",
    r"std::from_chars",
    r"__(cxa|gxx)_\w+",
    r"_Unwind_Resume",
    r"_GLOBAL_OFFSET_TABLE_",
    r"__stack_chk_fail",
    r"__cpu_(model|indicator_init)",
    r"(memcpy|memmove|memset|memcmp|bcmp|strlen|abort)(@.*)?$",
    r"crc32_iscsi(@.*)?$",  # ISA-L's: it computes, no more
    r"(snprintf|llround|ceil|floor|sqrt|pow)(@.*)?$",  # units: text and arithmetic
    r"__(a|ub|t)san_\w+",
]


def foreign_symbols(library: str) -> list[str]:
    lines = subprocess.run(["nm", "-uC", library], check=True, capture_output=True, text=True).stdout.splitlines()
    symbols = {match.group(1) for line in lines if (match := re.match(r"\s+U (.+)", line))}
    return sorted(symbol for symbol in symbols if not any(re.match(pattern, symbol) for pattern in ALLOWED))


def main() -> int:
    bad = 0
    for library in sys.argv[1:]:
        for symbol in foreign_symbols(library):
            print(f"{library}: '{symbol}' is not allowed in a sans-IO library (tests/gates/check_sans_io.py)")
            bad += 1
    print(f"sans-IO gate: {len(sys.argv) - 1} libraries, {bad} symbols not allowed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
