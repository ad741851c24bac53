"""Error bounds that kernels are held to."""

from .bounds import Bounds as Bounds
from .bounds import forward_bounds as forward_bounds
