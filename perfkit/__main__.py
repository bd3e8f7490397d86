"""``python -m perfkit``."""

import sys

# The folder that ``-m`` puts first may be a checkout of a library that perfkit uses itself.
if not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))

from perfkit.cli import main

if __name__ == "__main__":
    main()
