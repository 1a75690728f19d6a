"""What a run's evaluation does and does not show, decided from what happened in it.

Five desiderata of Farquhar and Gal 2018 (Towards robust evaluations of continual learning) and the three
constraints of applications of Pfuelb and Gepperth 2019 (A comprehensive, application-oriented study of
catastrophic forgetting).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cl_lightning.evaluation.scenario import TASK, scenario
from cl_lightning.store.records import RowRecord, StartRecord, StreamRecord, TaskRecord

# Growth of costs that is allowed: they also depend on how full the last mini-batch of an epoch is.
GROWTH = 1.1
UNKNOWN_ORIGIN = "no copies of examples were found in its checkpoints: generated, or changed"
UNSEEN = "what they did to it, the program cannot see"  # of callbacks
Said = tuple[bool | None, str]  # whether a rule holds, None: the program cannot know; and by what evidence


@dataclass(frozen=True)
class Finding:
    rule: str
    verdict: str  # satisfied | violated | unknown
    evidence: str


def card_of(start: StartRecord, tasks: Sequence[TaskRecord], rows: Sequence[RowRecord]) -> list[Finding]:
    """The card of a run, made of its records; empty before the first task is learned.

    Desiderata first, then constraints, then what is said only where it applies. Every violated one is to be
    reported with the numbers of the run.
    """
    if not tasks:
        return []
    stored = no_stored_examples(start, tasks)  # retraining and memory are judged by the same facts
    rules = {
        "cross-task resemblance": cross_task_resemblance(start.stream),
        "shared output head": shared_output_head(start, any(row.masks for row in rows)),
        "no task label at test": no_task_label_at_test(start),
        "no retraining on old tasks": stored,
        "more than two tasks": (len(tasks) > 2, f"{len(tasks)} task{'s' * (len(tasks) > 1)}"),
        "low memory": stored,
        "causality": causality(start, tasks),
        "constant update complexity": constant_update(tasks),
    }
    if start.passes:
        rules["single pass"] = single_pass(start, tasks)
    if start.stream.stand_ins:
        others = ", ".join(f"{other} stands in for {name}" for name, other in start.stream.stand_ins.items())
        rules["named data"] = False, f"{others}: numbers are not those of the named data sets"
    if start.callbacks:
        names = ", ".join(start.callbacks)
        rules["own callbacks"] = None, f"{names} ran beside the learner; {UNSEEN}"
    return [verdict(rule, *said) for rule, said in rules.items()]


def verdict(rule: str, holds: bool | None, evidence: str) -> Finding:
    return Finding(rule, {True: "satisfied", False: "violated", None: "unknown"}[holds], evidence)


def cross_task_resemblance(stream: StreamRecord) -> Said:
    sources = list(dict.fromkeys(stream.sources))
    if len(stream.sources) < 2:
        return None, "there is one task only"
    if stream.permuted:
        return False, "tasks differ by a permutation of pixels"
    if len(sources) < len(stream.sources):
        some = ", ".join(sources[:3])
        return True, f"by construction: tasks share sources of images ({some}), none permuted"
    measured = "python -m cl_lightning.data describe measures how alike they are"
    return None, f"every task has images of another source; {measured}"


def shared_output_head(start: StartRecord, masks: bool) -> Said:
    """``masks``: some logits were so low that the learner takes outputs out of the choice by itself."""
    head = start.stream.head
    if head == "multi_train_test":
        return False, "loss and test go over the task's own outputs (stream.head=multi_train_test)"
    if head == "multi_test":
        masked = "masked to the task's own outputs at test (stream.head=multi_test)"
        return False, f"shared in training, but {masked}"
    if masks:
        return False, "it masks outputs by itself: some of its logits are below -1e8"
    if start.needs["task_id_at_test"]:
        return None, "it is told the task's number, and may have outputs for each: the program cannot know"
    told = "and it is not told which task it is"
    return True, f"one output vector for all tasks (stream.head={head}), {told}"


def no_task_label_at_test(start: StartRecord) -> Said:
    head, owned = start.stream.head, [task["head"]["outputs"] for task in start.stream.tasks]
    of_run = scenario(head, owned, start.needs["task_id_at_test"])
    if of_run.name == TASK:
        return False, f"{of_run}; stream.head={head}"
    return True, f"by construction: {of_run}; test images of all tasks are mixed in batches"


def no_stored_examples(start: StartRecord, tasks: Sequence[TaskRecord]) -> Said:
    """Past inputs that are lent again, stored or replayed."""
    if lent := past_lent(tasks):
        says = "says so" if start.needs["past_data"] else "does not say so"
        return False, f"breaks the rules and {says}: {lent}"
    replayed = sum(map(added, tasks))
    if copies := stored_examples(tasks):
        return False, f"{copies}; {replayed} examples were added to mini-batches"
    if replayed:
        return None, f"{replayed} examples were added to mini-batches, and {UNKNOWN_ORIGIN}"
    return True, "none found: no example of a task in its checkpoints, and none added to mini-batches"


def chosen_over_streams(points: int, scored: int, by: str = "validation") -> Finding:
    """Causality of a run that a search over whole streams chose: its winner's file tells, and no record."""
    told = f"{by} data of all tasks, past and future, chose this run among {scored}"
    lacking = f"; {points - scored} of {points} points have no score" * (scored < points)
    return verdict("causality", False, f"{told} over whole streams (selection=stream_level){lacking}")


def causality(start: StartRecord, tasks: Sequence[TaskRecord]) -> Said:
    for task, each in enumerate(tasks):
        if max(each.lent) > task:
            return False, f"while learning task {task}, data of task {max(each.lent)} could be read"
    all_probed = any(probe.candidate is not None for each in tasks for probe in each.probes)
    if all_probed and len(start.stream.tasks) == 2:
        return False, (
            "prescient, realistic, best and last on both choose by test data, as in their papers; what was "
            "learned on was chosen by validation data"
        )
    phases = [[phase for phase in each.phases if not phase.auxiliary] for each in tasks]
    chose = sum(any(len(phase.candidates) > 1 for phase in of_task) for of_task in phases)
    if not chose:
        return None, "nothing was chosen in this run; how its fixed settings were found, it cannot know"
    seen = "validation data of tasks seen so far, and never by test data"
    return True, f"{chose} tasks chose among candidates by {seen}"


def constant_update(tasks: Sequence[TaskRecord]) -> Said:
    if len(tasks) < 3:
        return None, "growth shows with three tasks or more"
    if lent := past_lent(tasks):
        return False, f"{lent}: all data must be kept for it"
    first, last = tasks[1].checkpoint, tasks[-1].checkpoint
    end = len(tasks) - 1  # tasks are counted from 0
    bytes_grow = f"it holds {first:,} bytes after task 1, {last:,} after task {end}"
    if last > 1.01 * first:
        return False, bytes_grow
    costs = [
        (task, cost) for task, each in enumerate(tasks) if task and (cost := step_cost(each)) is not None
    ]
    if not costs:
        return None, f"{bytes_grow}; what mini-batches cost was not counted"
    steps = f"a training example costs {costs[0][1]:.3g} operations in task {costs[0][0]}"
    steps += f", {costs[-1][1]:.3g} in task {costs[-1][0]}" if len(costs) > 1 else ""
    return costs[-1][1] <= GROWTH * costs[0][1], f"{bytes_grow}; {steps}"


def step_cost(task: TaskRecord) -> float | None:
    """Operations of a mini-batch for an example and candidate, in the task's dearest phase."""
    trained = [phase.costs for phase in task.phases if phase.costs.candidate_examples]
    return max((costs.step_flops / costs.candidate_examples for costs in trained), default=None)


def single_pass(start: StartRecord, tasks: Sequence[TaskRecord]) -> Said:
    """Task after task, in the stream's order; never two tasks in a mini-batch."""
    passes = start.passes or 1
    sizes = [start.stream.tasks[each.task]["n_train"] for each in tasks]
    seen, sorts = [each.costs.examples for each in tasks], sorted(set(sizes))
    lent = f"{len(sizes)} x {sorts[0]}" if len(sorts) == 1 else f"{sum(sizes)}"
    evidence = f"examples seen: {sum(seen)} of {lent}" + f", in {passes} passes" * (passes > 1)
    if lent_again := past_lent(tasks):
        return False, f"{evidence}; {lent_again}"
    more = sum(map(added, tasks))
    evidence += f"; {more} were added by the learner, which are not counted" * bool(more)
    return seen == [passes * size for size in sizes], evidence


def added(task: TaskRecord) -> int:
    """Examples that the learner added to mini-batches, or trained on, besides those of the task."""
    return task.costs.replayed + sum(phase.foreign for phase in task.phases)


def past_lent(tasks: Sequence[TaskRecord]) -> str:
    again = sorted({task for i, each in enumerate(tasks) for task in each.lent if task < i})
    return f"training data of {len(again)} past tasks were lent again" if again else ""


def stored_examples(tasks: Sequence[TaskRecord]) -> str:
    copies = [count for each in tasks for count in each.copies.values()]
    where = sorted({name for each in tasks for name in each.copies})
    places = f"{', '.join(where[:3])}{', ...' * (len(where) > 3)}"
    return f"{sum(copies)} training examples were found in {places}" if copies else ""
