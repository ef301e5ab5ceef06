"""Lets every test import the models: ``from simdisk import SimDisk``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "model"))
