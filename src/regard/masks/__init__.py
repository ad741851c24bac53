"""Masks: which keys each query may attend to, as values that combine with ``& | ~``."""

from ._base import Mask as Mask
from ._leaves import Causal as Causal
from ._leaves import Dense as Dense
from ._leaves import Empty as Empty
from ._leaves import Full as Full
from ._leaves import KeyLengths as KeyLengths
from ._leaves import Window as Window
