"""The command line: one file per verb, each a door to one job."""

from __future__ import annotations

import sys

from perfkit.errors import EXIT_INTERRUPTED, PerfkitError


def main() -> None:
    """Run the command line; a mistake of the user's is one line and an exit code, never a traceback."""
    from perfkit.cli.app import app

    try:
        app()
    except PerfkitError as error:
        print(f"perfkit: {error}", file=sys.stderr)  # noqa: T201 (the command's own voice)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("perfkit: interrupted; what was measured so far is kept", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_INTERRUPTED)
