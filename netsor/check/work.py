"""How much a question of the checker may do: steps, counted before they are made, never seconds.

A step is a node of an expression that is bounded, differentiated or evaluated, a line that is looked at, or a thousand
numbers of an array. A question that would take more is undecided, and says so.
"""

from __future__ import annotations

from collections.abc import Hashable

MOST_STEPS = 800_000  # of one question
GIVEN_UP = "given up: it takes more work than the checker does for one question"


class SpentError(Exception):
    """A question that has used up its steps."""

    def __init__(self) -> None:
        super().__init__(GIVEN_UP)


class Work:
    """The steps that a question has left."""

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self.left = steps
        self.spent = False  # something was not done
        self._paid: set[Hashable] = set()

    def affords(self, steps: int, for_: Hashable = None) -> bool:
        """Take steps, if there are that many left; the same thing is paid for once."""
        if for_ is not None and for_ in self._paid:
            return True
        if steps > self.left:
            self.spent = True
            return False
        self.left -= steps
        if for_ is not None:
            self._paid.add(for_)
        return True

    def take(self, steps: int, for_: Hashable = None) -> None:
        """Take steps, or end the question."""
        if not self.affords(steps, for_):
            raise SpentError
