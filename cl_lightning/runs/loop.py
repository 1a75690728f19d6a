"""The loop of a run, the page to read first: every task of the stream is learned, recorded and tested.

The second page is the contract of a learner, ``learners/base.py``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from time import perf_counter

import cl_lightning.termination as termination
from cl_lightning.engine.boundary import card_facts, check_adopted
from cl_lightning.engine.optimizer import weights_key
from cl_lightning.report.schema import Results
from cl_lightning.runs.making import Making
from cl_lightning.store.folder import row_key
from cl_lightning.store.records import RowRecord


def train(prepared: AbstractContextManager[Making]) -> Results | None:
    """Learn every task that the store of a run does not hold yet. The results are None on ranks that do not
    write."""
    with prepared as run:
        name = run.cfg.stream.get("name", run.stream.name)
        run.notify("on_stream_start", name, len(run.stream), run.learned)
        try:
            learn_stream(run)
        finally:
            run.notify("on_stream_end")
        return run.write_results()


def learn_stream(run: Making) -> None:
    """Learn and test the tasks that are left."""
    measure(run, run.learned)
    for index in range(run.learned, len(run.stream)):
        learn(run, index)
        measure(run, index + 1)
    run.measure_at_end()
    run.store.drop("work")


def learn(run: Making, index: int) -> None:
    """Learn one task, and record it. Only here can its training data be read."""
    run.phases.own.learned = index + 1
    with run.data.open(index, past=run.learner.needs.past_data, to=run.learner) as task:
        run.notify("on_task_start", run.learner, task)
        before = None if index else weights_key(run.learner.parameters())
        run.phases.learn(run.learner, task)  # on_task_start, each phase that learn yields, on_task_end
        if before is not None:
            check_adopted(run.learner, before, run.phases)
        run.notify("on_task_end", run.learner, task)
        facts = card_facts(run.learner, task, run.at_start)
    run.save_task(index, facts)


def measure(run: Making, learned: int) -> None:
    """Test the learner after so many tasks, unless that is recorded."""
    if run.store.load(row_key(learned), RowRecord) is not None:
        return
    termination.exit_if_requested()
    run.phases.own.learned = learned
    began, last = perf_counter(), run.stream.task_without_data(max(learned - 1, 0))
    test = run.evaluator.measure(run.phases.predictors(run.learner, learned, last), learned)
    work, seconds, masks = run.phases.collect_work(), perf_counter() - began, run.evaluator.masks
    row = RowRecord(learned, test.rows, masks, work.phases, work.costs, seconds, test.measures)
    run.save_row(row, test.predictions)
