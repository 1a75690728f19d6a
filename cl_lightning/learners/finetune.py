"""One network through the whole stream."""

from cl_lightning.learners.base import Learner


class Finetune(Learner):
    """Each task's network starts from the last one's weights; nothing protects them."""
