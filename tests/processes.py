"""Code in processes of its own, for what one process cannot show."""

import os
import subprocess
import sys

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

HEAD = """
import atexit, os, random, signal, sys, threading, time
import numpy as np
import regard as rg
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is born deaf to it
x = np.random.default_rng(0).standard_normal((4, 300, 32), dtype=np.float32)
"""


def run(code, folder=None, **environment):
    """Standard output's words of a new process that ends well and says nothing on standard error."""
    code = code if HEAD in code else HEAD + code
    command = [sys.executable, "-c", code]
    if folder is not None:
        (folder / "script.py").write_text(code)
        command = [sys.executable, str(folder / "script.py")]
    environment = {**os.environ, "REGARD_NUM_THREADS": "2", **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stderr) == (0, ""), f"exit code {done.returncode}\n{done.stderr[-2000:]}"
    return done.stdout.split()
