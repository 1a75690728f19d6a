"""One network through the whole stream."""

from cl_lightning.learners.parts.batch_norm import Sharing


class Finetune(Sharing):
    """Each task's network starts from the last one's weights; nothing protects them."""
