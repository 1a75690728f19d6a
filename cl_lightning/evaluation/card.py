"""What a run's evaluation does and does not show, decided from what happened in it.

Five desiderata of Farquhar and Gal 2018 (Towards robust evaluations of continual learning) and the three constraints of
applications of Pfuelb and Gepperth 2019 (A comprehensive, application-oriented study of catastrophic forgetting).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cl_lightning.data.cache import Images
from cl_lightning.data.stream import Stream
from cl_lightning.evaluation.evaluator import Examination
from cl_lightning.evaluation.resemblance import SURE, Resemblance

GUESSES = 0.05  # share of predictions that may differ between two batchings, besides as many as differ by chance
UNKNOWN_ORIGIN = "no copies of examples were found in its state: generated, or changed"
GROWTH = 1.1  # of the cost of a mini-batch, which also depends on how full the last one of an epoch is


@dataclass(frozen=True)
class Lesson:
    """What happened while one task was learned."""

    lent: Sequence[int]  # tasks whose training data could be read
    copies: dict[str, int]  # examples of it found in the learner's state at its end, by where
    replayed: int  # examples that the learner added to mini-batches, or trained on, besides those of the task
    held: int  # bytes at its end: of the checkpoint
    step_cost: float | None  # operations of a mini-batch, an example and candidate; of its dearest phase
    compared: int  # candidates in its largest phase
    size: int = 0  # examples of the task
    seen: int = 0  # examples in mini-batches, as often as they came


@dataclass(frozen=True)
class Finding:
    rule: str
    verdict: str  # satisfied | violated | unknown
    evidence: str


def card_of(rows: Sequence[dict], stream: Stream, declares_past: bool, passes: int | None) -> list[Finding]:
    """From the journal's rows of a finished run."""
    examined = next(row for row in reversed(rows) if row["event"] == "examined")
    alike = Resemblance(**examined["resemblance"]) if examined["resemblance"] else None
    lessons = [lesson_of(row, rows, stream) for row in rows if row["event"] == "boundary"]
    findings = card(stream.head.mode, declares_past, lessons, Examination(**examined["examination"]), alike, passes)
    return findings + named_data([images for images in stream.sources if images.substitute])


def lesson_of(boundary: dict, rows: Sequence[dict], stream: Stream) -> Lesson:
    phases = [row for row in rows if row["event"] == "phase" and row["where"] == f"task{boundary['task']}"]
    trained = [phase["costs"] for phase in phases if phase["costs"]["candidate_examples"]]
    return Lesson(
        lent=boundary["lent"],
        copies=boundary["copies"],
        replayed=boundary["costs"]["replayed"] + sum(phase["foreign"] for phase in phases),
        held=boundary["stored"],
        step_cost=max((costs["step_flops"] / costs["candidate_examples"] for costs in trained), default=None),
        compared=max((len(phase["candidates"]) for phase in phases), default=0),
        size=len(stream.recipe(boundary["task"]).train),
        seen=boundary["costs"]["examples"],
    )


def card(
    mode: str,
    declares_past: bool,
    lessons: Sequence[Lesson],
    examined: Examination,
    alike: Resemblance | None,
    passes: int | None = None,
) -> list[Finding]:
    """Desiderata first, then constraints, then the protocol of a single pass where it was asked for.

    Every violated one is to be reported with the numbers of the run.
    """
    rules = [
        cross_task_resemblance(alike),
        shared_output_head(mode, examined),
        no_task_label_at_test(mode, examined),
        no_retraining_on_old_tasks(lessons, declares_past),
        more_than_two_tasks(len(lessons)),
        low_memory(lessons, declares_past),
        causality(lessons),
        constant_update(lessons),
    ]
    return rules + ([single_pass(lessons, passes)] if passes else [])


def named_data(stand_ins: Sequence[Images]) -> list[Finding]:
    """Said where other images take the place of those that the stream names."""
    if not stand_ins:
        return []
    told = ", ".join(f"{images.source} stands in for {images.name}" for images in stand_ins)
    return [verdict("named data", False, f"{told}: numbers are not those of the named data sets")]


def verdict(rule: str, holds: bool | None, evidence: str) -> Finding:
    return Finding(rule, {True: "satisfied", False: "violated", None: "unknown"}[holds], evidence)


def cross_task_resemblance(alike: Resemblance | None) -> Finding:
    rule = "cross-task resemblance"
    if alike is None:
        return verdict(rule, None, "there is one task only")
    told = (
        f"a network trained on earlier tasks gives {alike.sure:.1%} of the images of task {alike.task} an old class with probability "
        f"{SURE} or more (mean entropy {alike.entropy:.2f} nats)"
    )
    return verdict(rule, alike.alike, f"tasks differ by a permutation of pixels; {told}" if alike.permuted else told)


def shared_output_head(mode: str, examined: Examination) -> Finding:
    rule = "shared output head"
    if mode == "multi_train_test":
        return verdict(rule, False, "loss and test go over the task's own outputs (stream.head=multi_train_test)")
    if mode == "multi_test":
        return verdict(rule, False, "shared in training, but masked to the task's own outputs at test (stream.head=multi_test)")
    if examined.masked:
        return verdict(rule, False, "it masks outputs by itself: some of its logits are -inf")
    if examined.layers > 1:
        return verdict(rule, False, f"{examined.layers} different output layers gave the predictions for {examined.tasks} tasks")
    return verdict(rule, True, f"one output vector for all tasks (stream.head={mode})")


def no_task_label_at_test(mode: str, examined: Examination) -> Finding:
    rule, changed = "no task label at test", f"{examined.changed} of {examined.images} predictions"
    if not examined.images:
        return verdict(rule, None, "nothing could be predicted at the end")
    if examined.told and examined.changed:
        return verdict(rule, False, f"it declares that it needs the task's number, and {changed} change when it is told another")
    if examined.unsteady:
        same = f"{examined.unsteady} of {examined.images} predictions"
        return verdict(rule, False, f"it is not told the task, but {same} of the same images change from one call to the next: it counts")
    by_chance = examined.noise + 3 * (2 * examined.noise) ** 0.5  # of two counts of such differences, one may be so much the higher
    if not examined.told and examined.changed > by_chance + GUESSES * examined.images:
        return verdict(rule, False, f"it is not told the task, but {changed} change when images of all tasks are mixed: it finds out")
    if mode in ("multi_test", "multi_train_test"):
        return verdict(rule, False, f"outputs of other tasks are masked at test (stream.head={mode})")
    if examined.told and examined.tasks < 2:
        return verdict(rule, None, "it is told the task's number, and there is no other to tell it")
    if examined.told:
        return verdict(rule, True, f"it is told the task's number, but none of {examined.images} predictions change when told another")
    noise = f", {examined.noise} by chance alone" if examined.noise else ""
    return verdict(rule, True, f"it is not told the task; {changed} change when images of all tasks are mixed{noise}")


def no_retraining_on_old_tasks(lessons: Sequence[Lesson], declares_past: bool) -> Finding:
    rule = "no retraining on old tasks"
    if lent := past_lent(lessons):
        return verdict(rule, False, f"breaks the rules and {'says so' if declares_past else 'does not say so'}: {lent}")
    replayed = sum(lesson.replayed for lesson in lessons)
    if copies := stored(lessons):
        return verdict(rule, False, f"{copies}; {replayed} examples were added to mini-batches")
    if replayed:
        return verdict(rule, None, f"{replayed} examples were added, and {UNKNOWN_ORIGIN}")
    return verdict(rule, True, "no example of a task was found in its state at the task's end, and none was added to mini-batches")


def more_than_two_tasks(tasks: int) -> Finding:
    return verdict("more than two tasks", tasks > 2, f"{tasks} task{'s' * (tasks > 1)}")


def low_memory(lessons: Sequence[Lesson], declares_past: bool) -> Finding:
    rule, found = "low memory", past_lent(lessons) or stored(lessons)
    if not found and (replayed := sum(lesson.replayed for lesson in lessons)):
        return verdict(rule, None, f"{replayed} examples were added to mini-batches, and {UNKNOWN_ORIGIN}")
    return verdict(rule, not found, found or "no input of a past task was stored, or used to stop or select")


def causality(lessons: Sequence[Lesson]) -> Finding:
    rule = "causality"
    ahead = [i for i, lesson in enumerate(lessons) if max(lesson.lent) > i]
    if ahead:
        return verdict(rule, False, f"while learning task {ahead[0]}, data of task {max(lessons[ahead[0]].lent)} could be read")
    chose = sum(lesson.compared > 1 for lesson in lessons)
    if not chose:
        return verdict(rule, None, "nothing was chosen in this run; how its fixed settings were found, it cannot know")
    return verdict(rule, True, f"{chose} tasks chose among candidates by validation data of tasks seen so far, and never by test data")


def constant_update(lessons: Sequence[Lesson]) -> Finding:
    rule = "constant update complexity"
    if len(lessons) < 3:
        return verdict(rule, None, "growth shows with three tasks or more")
    if lent := past_lent(lessons):
        return verdict(rule, False, f"{lent}: all data must be kept for it")
    first, last = lessons[1].held, lessons[-1].held
    bytes_grow = f"it holds {first:,} bytes after the second task, {last:,} after the last"
    if last > 1.01 * first:
        return verdict(rule, False, bytes_grow)
    costs = [lesson.step_cost for lesson in lessons[1:] if lesson.step_cost is not None]
    if not costs:
        return verdict(rule, None, f"{bytes_grow}; what mini-batches cost was not counted")
    steps = f"a training example costs {costs[0]:.3g} operations in the {'second' if len(costs) > 1 else 'last'} task"
    steps += f", {costs[-1]:.3g} in the last" if len(costs) > 1 else ""
    return verdict(rule, costs[-1] <= GROWTH * costs[0], f"{bytes_grow}; {steps}")


def single_pass(lessons: Sequence[Lesson], passes: int) -> Finding:
    """Task after task, in the stream's order; never two tasks in a mini-batch."""
    sizes = [lesson.size for lesson in lessons]
    seen, each = sum(lesson.seen for lesson in lessons), sorted(set(sizes))
    lent = f"{len(sizes)} x {each[0]}" if len(each) == 1 else f"{sum(sizes)}"
    told = f"examples seen: {seen} of {lent}" + f", in {passes} passes" * (passes > 1)
    if lent_again := past_lent(lessons):
        return verdict("single pass", False, f"{told}; {lent_again}")
    added = sum(lesson.replayed for lesson in lessons)
    told += f"; {added} were added by the learner, which are not counted" * bool(added)
    return verdict("single pass", [lesson.seen for lesson in lessons] == [passes * size for size in sizes], told)


def past_lent(lessons: Sequence[Lesson]) -> str:
    again = sorted({task for i, lesson in enumerate(lessons) for task in lesson.lent if task < i})
    return f"training data of {len(again)} past tasks were lent again" if again else ""


def stored(lessons: Sequence[Lesson]) -> str:
    copies = [count for lesson in lessons for count in lesson.copies.values()]
    where = sorted({name for lesson in lessons for name in lesson.copies})
    return f"{sum(copies)} training examples were found in {', '.join(where[:3])}{', ...' * (len(where) > 3)}" if copies else ""
