"""Finetune is nothing but training."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from cl_lightning.data.task import Blocks
from cl_lightning.learners import Finetune
from tests import toys
from tests.toys import builder, learn, training


def flat(network: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("head", ["single", "multi_train_test"])
@pytest.mark.parametrize("state", ["reset", "carry"])
def test_finetune_is_a_hand_written_loop_to_the_bit(
    optimizer: str, dropout: float, head: str, state: str
) -> None:
    s = toys.pairs_of_classes(head)
    build = builder(s, dropout=dropout)
    momentum = 0.0 if optimizer == "adam" else 0.9
    learned = learn(
        Finetune(build=build, head=s.head, seed=3),
        s,
        training(optimizer=optimizer, momentum=momentum, optimizer_state=state),
    )

    from cl_lightning.randomness import seed_of, seeded

    with seeded(3, "init", 0):
        network = build()
    with torch.random.fork_rng():
        for index in range(2):
            if index == 0 or state == "reset":
                parameters = network.parameters()
                adam = optimizer == "adam"
                opt = (
                    torch.optim.Adam(parameters, 0.01, fused=True)
                    if adam
                    else torch.optim.SGD(parameters, 0.01, momentum, fused=True)
                )
            network.train()
            for block in Blocks(s.task(index).train, (3, f"task{index}", 0), 10, 3, 1):
                for batch in block.batches:
                    opt.zero_grad()
                    torch.manual_seed(seed_of(*batch.key, "loss"))
                    logits = network(batch.x)
                    if head == "multi_train_test":
                        logits[:, [2, 3] if index == 0 else [0, 1]] = -torch.inf
                    F.cross_entropy(logits, batch.y).backward()
                    opt.step()
    assert torch.equal(learned.weights, flat(network))
