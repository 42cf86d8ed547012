"""The refit beside the requests: the newest labels win, and a failure is not the end."""

from __future__ import annotations

import threading

from pro2.label.worker import Worker


def test_what_comes_while_one_runs_makes_one_further_refit():
    state, seen, begun, gate = {"labels": 0}, [], threading.Event(), threading.Event()

    def steps():
        labels = state["labels"]
        yield "model", labels
        begun.set()
        if labels == 0:
            gate.wait(10)
        yield "rows", labels

    worker = Worker(steps, seen.append)
    worker.start()
    worker.ask()
    begun.wait(10)
    for n in range(1, 30):
        state["labels"] = n
        worker.ask()
    gate.set()
    assert worker.wait(10)
    worker.stop()
    assert seen == [("model", 0), ("rows", 0), ("model", 29), ("rows", 29)]


def test_newer_labels_come_first_but_every_other_time():
    """Somebody who labels faster than refits run: figures come sooner, and there are new rows all the same."""
    seen: list[tuple[str, int]] = []

    def steps():
        labels = len([what for what, _ in seen if what == "model"])
        if labels < 6:
            worker.ask()  # another label, while the model is fitted
        yield "model", labels
        yield "rows", labels

    worker = Worker(steps, seen.append)
    worker.start()
    worker.ask()
    while ("rows", 6) not in seen:
        assert worker.wait(10)
    worker.stop()
    assert [labels for what, labels in seen if what == "rows"] == [1, 3, 5, 6]


def test_a_refit_that_fails_is_logged_and_the_next_one_runs(caplog):
    calls = []

    def steps():
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("singular")
        yield "fine"

    seen: list[str] = []
    worker = Worker(steps, seen.append)
    worker.start()
    worker.ask()
    assert worker.wait(10)
    worker.ask()
    assert worker.wait(10)
    worker.stop()
    assert seen == ["fine"]
    assert "the refit failed" in caplog.text


def test_stopping_without_having_started_or_worked():
    Worker(lambda: [], print).stop()
    worker = Worker(lambda: [], print)
    worker.start()
    worker.stop()
    assert worker.wait(0.1)
