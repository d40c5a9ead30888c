"""Where the package lies, and the checkout around it if it is not installed."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parents[1]
