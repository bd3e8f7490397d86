"""``perfkit view``: a profile in the browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from perfkit.errors import UsageError
from perfkit.extras import need
from perfkit.profiling.read.files import read_profile
from perfkit.profiling.read.names import CodeNames, printable

# Snakeviz writes names as they are between the tags of a script in its page.
_ENDS_SCRIPT = re.compile(rb"</script|<!--", re.IGNORECASE)


def view_command(file: Path, *, server: bool) -> Sequence[str]:
    """Return the command that shows a cProfile in snakeviz; as a ``server`` it only prints its address.

    Raises:
        UsageError: the file is no cProfile, or snakeviz is not installed.
    """
    reading = read_profile(file, CodeNames())
    if reading.origin != "cProfile":
        raise UsageError(
            f"{file} is a {reading.origin}, and snakeviz shows cProfiles; `perfkit show {file}` tells what it"
            " says, and a trace opens at https://ui.perfetto.dev"
        )
    if _ENDS_SCRIPT.search(file.read_bytes()):
        raise UsageError(
            f"{printable(str(file))} names functions that would run as code in snakeviz's page; "
            "`perfkit show` tells what it says"
        )
    need("snakeviz", by="perfkit view")
    options = ["--server"] if server or not has_browser() else []
    # An absolute path is no option, whatever the file is called.
    return [sys.executable, "-m", "snakeviz", "--hostname", "127.0.0.1", *options, str(file.absolute())]


def view(file: Path, *, server: bool) -> int:
    """Show a profile until the person ends it, and return snakeviz's exit code."""
    try:
        # The address is flushed, so that a reader at the end of a pipe has it at once.
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        return subprocess.run(view_command(file, server=server), env=environment, check=False).returncode
    except KeyboardInterrupt:
        return 0


def has_browser() -> bool:
    """Tell whether there is a browser to open a page in."""
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True
