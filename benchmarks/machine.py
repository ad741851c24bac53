"""What the numbers depend on, the sources' state among it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from regard import bench

ROOT = Path(__file__).parents[1]


def commit():
    """What is checked out, with a + where files differ from it; None outside of a repository."""
    try:
        git = ("git", "-C", str(ROOT))
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
        changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.strip() + ("+" if changed.strip() else "")


def machine():
    return bench.machine() | {"commit": commit()}
