"""Command lines that answer a mistake with one line."""

import argparse
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Reads a workload's arguments."""

    def error(self, message: str) -> NoReturn:
        """End with one line: the usage, which argparse would print as well, is under --help."""
        self.exit(2, f"{self.prog}: error: {message}\n")
