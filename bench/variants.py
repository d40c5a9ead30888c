#!/usr/bin/env python3
"""Event building with some settings, or an engine, against others (docs/measuring.md): what a default should be.

The first variant is what the others are compared with:

    bench/variants.py --mfp-size 64KiB default: plain:transport.shm.stores=plain deep:protocol.credits=32
    bench/variants.py before@build/old/bin/incast-node: after:
"""

import argparse
from pathlib import Path

from harness import GIGABYTES, MESSAGES, Entrant, Session, add_options, conditions, version_of
from programs import Incast, ProgramError, event_building
from sizes import Size, cache_option, chosen_cache, parse_size


def parse_variant(text: str) -> tuple[str, Path | None, tuple[str, ...]]:
    """`NAME[@ENGINE]:KEY=VALUE,KEY=VALUE`; no settings are the defaults."""
    name, colon, settings = text.partition(":")
    name, _, engine = name.partition("@")
    words = tuple(word for word in settings.split(",") if word)
    if not colon or not name or any("=" not in word for word in words):
        raise argparse.ArgumentTypeError(f"'{text}': expected NAME[@ENGINE]:[KEY=VALUE,...]")
    return name, Path(engine) if engine else None, words


def main() -> int:
    """The comparison of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    cache_option(parser)
    parser.add_argument("variants", nargs="+", type=parse_variant, metavar="NAME[@ENGINE]:[KEY=VALUE,...]")
    parser.add_argument("--transport", default="shm")
    parser.add_argument("--scheme", default="push")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--mfp-size", type=parse_size, default=Size("64KiB", 65536))
    parser.add_argument("--sink", default="null", help="null, touch, verify:HOW (default: null)")
    parser.add_argument("--self-traffic", default="copy", choices=["copy", "pointer"])
    parser.add_argument("--quantity", default="total", choices=["total", "total_without_self", "crossing_mfps"])
    arguments = parser.parse_args()
    found = conditions(incast=version_of([str(arguments.engine), "--version"]))
    cache = chosen_cache(arguments, found)
    session = Session(arguments, found)
    settings = event_building(
        transport=arguments.transport,
        scheme=arguments.scheme,
        mfp_bytes=arguments.mfp_size.bytes,
        nodes=arguments.nodes,
        cache=cache,
        self_traffic=arguments.self_traffic,
        sink=arguments.sink,
    )
    entrants = [
        Entrant(
            name,
            Incast(
                engine=engine or arguments.engine,
                seconds=arguments.seconds,
                warm_up=arguments.warm_up,
                settings=settings,
                overrides=(*arguments.overrides, *words),
                quantity=arguments.quantity,
                copies=False,  # views may be what is compared
            ),
        )
        for name, engine, words in arguments.variants
    ]
    # The others are what a person wants to know of: their ratios are to the first.
    subject, *others = entrants
    for other in others:
        session.compare(
            f"{arguments.transport} {arguments.scheme}, {arguments.mfp_size} MFPs: {other.name} against {subject.name}",
            [other, subject],
            unit=MESSAGES if arguments.quantity == "crossing_mfps" else GIGABYTES,
        )
    return session.exit_status()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except ProgramError as error:
        raise SystemExit(f"{error}") from None
