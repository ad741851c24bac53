"""Biases: numbers added to the scores, as values that combine with ``+`` and are never spelled out."""

from ._base import Bias as Bias
from ._base import DenseBias as DenseBias
from ._base import Table as Table
from ._base import as_bias as as_bias
from ._distance import Alibi as Alibi
from ._distance import RelativeBias as RelativeBias
from ._distance import T5Bias as T5Bias
