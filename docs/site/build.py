"""Builds the site of `make docs` from zensical.toml, docs/ and the docstrings; every warning is an error.

Zensical's `--strict` counts what is wrong in pages. What Griffe says about docstrings goes to Python's logging alone,
so it is counted here.
"""

import logging
import sys

from zensical.main import cli


class WarningCounter(logging.Handler):
    """Prints each warning and counts them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging for one warning or error."""
        self.count += 1
        print(f"Warning: {record.getMessage()}", file=sys.stderr)


def main() -> int:
    """Build the site. Returns the exit status: 1 after any warning."""
    warnings = WarningCounter()
    logging.getLogger().addHandler(warnings)
    try:
        # Without --clean, pages that did not change are taken from a cache, and so their warnings are not repeated.
        cli(["build", "--clean", "--strict"], standalone_mode=False)
    except RuntimeError as error:  # warnings about pages, which are printed already
        print(f"Error: {error}", file=sys.stderr)
        return 1
    if warnings.count:
        print(f"Error: {warnings.count} warnings about docstrings; mend them, then run `make docs`", file=sys.stderr)
    return 1 if warnings.count else 0


if __name__ == "__main__":
    sys.exit(main())
