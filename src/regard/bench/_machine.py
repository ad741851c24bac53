"""What the numbers depend on."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from regard import _runtime

from ._race import load

PACKAGES = ("torch", "jax", "onnxruntime", "openvino", "ml-dtypes", "regard")


def cpu() -> str:
    """Model and family as the system tells them; a hypervisor may hide either."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or platform.machine()
    lines = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in lines.items()}
    name = fields.get("model name", platform.machine())
    return f"{name} (family {fields.get('cpu family')}, model {fields.get('model')})"


def caches() -> dict[str, str]:
    """Size of each cache that processor 0 sees, such as ``{"L1 Data": "32K"}``."""
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        found[f"L{level} {kind}"] = size
    return found


def memory_gib() -> float | None:
    """Memory of the machine; None where the system does not tell."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)


def installed(package: str) -> str | None:
    """Version of a package; None if it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def machine() -> dict[str, Any]:
    """All of it, and the day."""
    blas = [f"{b['internal_api']} {b['version']} {b.get('architecture', '')}".strip() for b in threadpool_info()]
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "cpu": cpu(),
        "caches": caches(),
        "memory_gib": memory_gib(),
        "processors": os.cpu_count(),
        "load_before": load(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": blas,
        **{package: installed(package) for package in PACKAGES},
        "target": _runtime.chosen()[0],
    }
