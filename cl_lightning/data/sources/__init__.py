"""Where images come from: drawn, on the Hub, in folders, in arrays of one's own."""

from cl_lightning.data.sources.arrays import Arrays
from cl_lightning.data.sources.folder import ImageFolder
from cl_lightning.data.sources.hub import ParquetImages

__all__ = ["Arrays", "ImageFolder", "ParquetImages"]
