"""How much time a check has, what a part of it may take, and what has been asked in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

# Called with what is being asked, and the share of the whole that is behind, 0 to 1.
Listener: TypeAlias = Callable[[str, float], None]


class Clock:
    """Called, it says whether there is time for another question."""

    def __init__(self, budget_s: float, listener: Listener | None = None) -> None:
        self._began, self._budget, self._listener = time.monotonic(), budget_s, listener
        self.is_over = False
        self.asked: list[str] = []
        self.questions = 0  # about how many there will be

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self._began

    def __call__(self) -> bool:
        self.is_over = self.is_over or self.spent >= self._budget
        return not self.is_over

    def stretch(self, times: int) -> None:
        """Give more time, to a library that needs it for the same questions."""
        self._budget *= times

    def asks(self, question: str) -> bool:
        """Whether there is time for a question, which is then told to the listener."""
        if not self():
            return False
        self.asked.append(question)
        if self._listener:
            self._listener(question, min(len(self.asked) / max(self.questions, 1), 1.0))
        return True
