"""The accuracy matrix and what is computed from it.

``R`` is (tasks + 1, tasks): R[i, j] is the test accuracy on task j, from 0, after learning i tasks; row 0 is
before learning. NaN stands where the learner could not predict the task, or was not asked. With T tasks, R[T]
is the last row, and R[j + 1, j] the accuracy on task j when it had just been learned. A metric that needs a
missing entry is NaN.

Forgetting has three published definitions, and a name for each: ``forgetting`` is the fall of the accuracy
since a task was learned, ``forgetting_from_best`` the fall from the best that it ever was,
``forgetting_ratio`` the part that is missing of what joint training reaches. All are positive where something
was forgotten, whatever sign their papers print.

The worked example of the docstrings, with the baseline row [.1, .1, .1] on top:

>>> R = torch.tensor([[.1, .1, .1], [.9, .5, .2], [.7, .8, .3], [.6, .9, .7]])
"""

from __future__ import annotations

import torch
from torch import Tensor


def average_accuracy(R: Tensor) -> Tensor:
    """ACC = mean over j of R[T, j] (Lopez-Paz and Ranzato 2017, eq. 2).

    >>> R = torch.tensor([[.1, .1, .1], [.9, .5, .2], [.7, .8, .3], [.6, .9, .7]])
    >>> round(average_accuracy(R).item(), 4)  # (.6 + .9 + .7) / 3
    0.7333
    """
    return R[-1].mean()


def average_incremental_accuracy(R: Tensor) -> Tensor:
    """AIA = mean over i = 1 .. T of A_i, where A_i = mean over j < i of R[i, j] is the accuracy on the i
    tasks learned so far (the average incremental accuracy of Rebuffi et al. 2017). ACC is A_T alone. In A_i
    every task counts the same.

    >>> R = torch.tensor([[.1, .1, .1], [.9, .5, .2], [.7, .8, .3], [.6, .9, .7]])
    >>> round(average_incremental_accuracy(R).item(), 4)  # (.9 + (.7 + .8) / 2 + (.6 + .9 + .7) / 3) / 3
    0.7944
    """
    return torch.stack([row[:i].mean() for i, row in enumerate(R[1:], 1)]).mean()


def learning_accuracy(R: Tensor) -> Tensor:
    """LA = mean over j of R[j + 1, j]: how well each task was learned when it came (Riemer et al. 2019).

    >>> R = torch.tensor([[.1, .1, .1], [.9, .5, .2], [.7, .8, .3], [.6, .9, .7]])
    >>> round(learning_accuracy(R).item(), 4)  # (.9 + .8 + .7) / 3
    0.8
    """
    return just_learned(R).mean()


def backward_transfer(R: Tensor) -> Tensor:
    """BWT = 1 / (T - 1) sum over j < T - 1 of R[T, j] - R[j + 1, j] (Lopez-Paz and Ranzato 2017, eq. 3).
    Negative: forgetting.

    Their program counts the last task, too, whose term is 0, and divides by T: the numbers that they print
    are (T - 1) / T of this, 0.95 with 20 tasks.

    >>> R = torch.tensor([[.1, .1, .1], [.9, .5, .2], [.7, .8, .3], [.6, .9, .7]])
    >>> round(backward_transfer(R).item(), 4)  # ((.6 - .9) + (.9 - .8)) / 2
    -0.1
    """
    return (R[-1] - just_learned(R))[:-1].mean()


def forward_transfer(R: Tensor) -> Tensor:
    """FWT = 1 / (T - 1) sum over j > 0 of R[j, j] - R[0, j]: accuracy just before learning a task, over that
    of the untrained network (Lopez-Paz and Ranzato 2017, eq. 4).

    Their program counts the first task, too, with 0, and divides by T: the numbers that they print are (T -
    1) / T of this.

    >>> R = torch.tensor([[.1, .1, .1], [.9, .5, .2], [.7, .8, .3], [.6, .9, .7]])
    >>> round(forward_transfer(R).item(), 4)  # ((.5 - .1) + (.3 - .1)) / 2
    0.3
    """
    return (R[:-1].diagonal() - R[0])[1:].mean()


def forgetting(R: Tensor) -> Tensor:
    """F = 1 / (T - 1) sum over j < T - 1 of R[j + 1, j] - R[T, j]: the fall since each task was learned.
    Positive: forgetting. This is -BWT. Veniat et al. 2021 print it with the opposite sign, R[T, j] - R[j + 1,
    j].

    >>> R = torch.tensor([[.1, .1, .1], [.9, .5, .2], [.7, .8, .3], [.6, .9, .7]])
    >>> round(forgetting(R).item(), 4)  # ((.9 - .6) + (.8 - .9)) / 2
    0.1
    """
    return (just_learned(R) - R[-1])[:-1].mean()


def forgetting_from_best(R: Tensor) -> Tensor:
    """F = 1 / (T - 1) sum over j < T - 1 of (max over 0 < i < T of R[i, j]) - R[T, j] (Chaudhry et al. 2018,
    eq. 3): the fall from the best accuracy that each task ever had, of the entries there are. Positive:
    forgetting.

    >>> R = torch.tensor([[.1, .1, .1], [.9, .5, .2], [.7, .8, .3], [.6, .9, .7]])
    >>> round(forgetting_from_best(R).item(), 4)  # ((.9 - .6) + (.8 - .9)) / 2
    0.1
    >>> R[2, 0] = .95  # better than when it was learned: ((.95 - .6) + (.8 - .9)) / 2
    >>> round(forgetting_from_best(R).item(), 4)
    0.125
    """
    tasks = R.shape[1]
    if tasks == 1:
        return nan(R)
    best = R[1:tasks, :-1].nan_to_num(nan=-torch.inf).amax(0)
    return (torch.where(best.isinf(), nan(R), best) - R[-1, :-1]).mean()


def forgetting_ratio(R: Tensor, random: Tensor, joint: Tensor) -> Tensor:
    """1 - mean over j of (R[T, j] - random[j]) / (joint[j] - random[j]): 0 as good as training on all tasks
    jointly, 1 no better than chance. Positive: forgetting. This is -rho of Serra et al. 2018, eq. 7.
    ``random`` (T,) is the accuracy of an untrained network, ``joint`` (T,) that of joint training.

    >>> R = torch.tensor([[.1, .1, .1], [.9, .5, .2], [.7, .8, .3], [.6, .9, .7]])
    >>> # 1 - (.5 / 1. + .8 / .8 + .6 / .6) / 3
    >>> round(forgetting_ratio(R, R[0], torch.tensor([1.1, .9, .7])).item(), 4)
    0.1667
    """
    return 1 - ((R[-1] - random) / (joint - random)).mean()


def just_learned(R: Tensor) -> Tensor:
    """R[j + 1, j] for every task j: (tasks,)."""
    return R[1:].diagonal()


def nan(R: Tensor) -> Tensor:
    return R.new_tensor(torch.nan)


def predicted(logits: Tensor) -> Tensor:
    """Output numbers (n,) of logits (n, outputs): that of the largest; -1, which is nobody's, where some are
    NaN.

    >>> predicted(torch.tensor([[.1, .2], [torch.nan, .2], [-torch.inf, -torch.inf]])).tolist()
    [1, -1, 0]
    """
    largest, numbers = logits.max(1)  # NaN where there is one
    return numbers.masked_fill(largest.isnan(), -1)
