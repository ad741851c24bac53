"""What the numbers depend on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

import regard as rg
from regard import _runtime

ROOT = Path(__file__).parents[1]
PACKAGES = ("torch", "jax", "onnxruntime", "openvino", "ml-dtypes")


def cpu():
    """Model and family as the system tells them; a hypervisor may hide either."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or platform.machine()
    lines = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in lines.items()}
    name = fields.get("model name", platform.machine())
    return f"{name} (family {fields.get('cpu family')}, model {fields.get('model')})"


def caches():
    """Size of each cache that processor 0 sees, such as ``{"L1 Data": "32K"}``."""
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        found[f"L{level} {kind}"] = size
    return found


def memory_gib():
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)


def installed(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None


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
    blas = [f"{b['internal_api']} {b['version']} {b.get('architecture', '')}" for b in threadpool_info()]
    return {
        "cpu": cpu(),
        "caches": caches(),
        "memory_gib": memory_gib(),
        "processors": os.cpu_count(),
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": blas,
        **{package: installed(package) for package in PACKAGES},
        "regard": rg.__version__,
        "commit": commit(),
        "target": _runtime.chosen()[0],
    }
