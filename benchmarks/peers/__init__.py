"""Who is timed: each by its name. Those that `regard bench` has too are regard.bench's."""

from benchmarks.peers._own import OWN
from benchmarks.peers._runtimes import RUNTIMES
from benchmarks.peers._tiles import Online
from benchmarks.peers._torch import TORCH
from regard.bench import Gqa, InPlace, MaskArray, Regard, Sdpa, Textbook

ALL = (Regard(), *OWN, Sdpa(), MaskArray(), Gqa(), *TORCH, Textbook(), InPlace(), Online(), *RUNTIMES)
PEERS = {peer.name: peer for peer in ALL}
