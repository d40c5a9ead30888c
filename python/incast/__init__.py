"""Incast: event building over any interconnect, real or simulated."""

__version__: str


def __getattr__(name: str) -> str:
    """The version is looked up when it is asked for: the command is to be there at once."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("incast")
    except PackageNotFoundError:  # imported from a checkout that was never installed
        return "0+checkout"
