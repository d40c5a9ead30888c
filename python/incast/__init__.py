"""Incast: event building over any interconnect, real or simulated."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("incast")
except PackageNotFoundError:  # imported from a checkout that was never installed
    __version__ = "0+checkout"
