"""The refit beside the requests: one thread, and only the newest labels count."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from threadpoolctl import threadpool_limits

log = logging.getLogger("pro2.label")


class Worker:
    """Runs `steps()` after every `ask()`, in a thread of its own.

    Parameters
    ----------
    steps : callable
        Looks at the labels of that moment and returns the steps of a refit. Each step is a finished piece of work;
        those after the first are left out, every other time, when newer labels have come.
    take : callable
        Called with what each step produced.
    """

    def __init__(self, steps: Callable[[], Iterable[Any]], take: Callable[[Any], None]) -> None:
        self._steps, self._take = steps, take
        self._state = threading.Condition()
        self._asked, self._done, self._stopping, self._hurried = 0, 0, False, False
        self._thread = threading.Thread(target=self._listen, name="refit", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def ask(self) -> None:
        """There are newer labels. Any number of calls while a refit runs make one further refit."""
        with self._state:
            self._asked += 1
            self._state.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Until everything asked for so far is done, or the time is over."""
        with self._state:
            asked = self._asked
            return self._state.wait_for(lambda: self._done >= asked or self._stopping, timeout)

    def stop(self) -> None:
        """Finish the step at hand, then end."""
        with self._state:
            self._stopping = True
            self._state.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _listen(self) -> None:
        # the browser works on the same cores: threads of a matrix product that wait for each other would take them away
        with threadpool_limits(1):
            while True:
                with self._state:
                    self._state.wait_for(lambda: self._asked > self._done or self._stopping)
                    if self._stopping:
                        return
                    asked = self._asked
                self._refit(asked)
                with self._state:
                    self._done = asked
                    self._state.notify_all()

    def _refit(self, asked: int) -> None:
        """A refit that fails is told in the log; the last good model stays, and labels are saved all the same."""
        try:
            for number, result in enumerate(self._steps()):
                self._take(result)
                if number == 0:
                    # newer labels come before all other steps, but not twice in a row: who labels quickly needs those
                    self._hurried = self._asked > asked and not self._hurried
                if self._stopping or self._hurried:
                    return
        except Exception:
            log.exception("the refit failed; the model before it stays")
