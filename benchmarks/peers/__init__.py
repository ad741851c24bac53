"""Who is timed: each by its name."""

from benchmarks.peers._numpy import NUMPY
from benchmarks.peers._own import OWN
from benchmarks.peers._peer import Peer as Peer
from benchmarks.peers._runtimes import RUNTIMES
from benchmarks.peers._torch import TORCH

PEERS = {peer.name: peer for peer in (*OWN, *TORCH, *NUMPY, *RUNTIMES)}
