"""The peak of this process' memory."""

from __future__ import annotations

import ctypes
import resource
import sys


def peak():
    """The most bytes that this process ever had in memory, or since `forget_peak`."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    # Linux hands ru_maxrss down: it would begin at the peak of the process that started this one.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024


def forget_peak():
    """Begin again, where the system can; what was freed goes back to it, or a call would be given that for nothing."""
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), "malloc_trim", lambda kept: 0)(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
