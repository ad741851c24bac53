"""What a function does beside computing: to its inputs, between calls, with odd shapes and memory layouts.

Each test returns None, or what it saw. The arrays are the ones that were passed, in the function's own words.
"""

from . import cost, edges, memory, options, state
from ._base import HABITS as HABITS
from ._base import Behaviour as Behaviour
from ._base import Habit as Habit
from ._base import seen_habits as seen_habits
from .sizes import wrong_size as wrong_size

__all__ = ["HABITS", "Behaviour", "Habit", "cost", "edges", "memory", "options", "seen_habits", "state", "wrong_size"]
