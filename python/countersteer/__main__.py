"""``python -m countersteer`` and the command ``steer``."""

import sys

from .program import steer

if __name__ == "__main__":
    sys.exit(steer())
