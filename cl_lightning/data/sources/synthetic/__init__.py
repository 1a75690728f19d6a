"""Data sets drawn on this machine: a stand-in for every data set of the papers, nothing downloaded."""

from cl_lightning.data.sources.synthetic.clothes import Clothes
from cl_lightning.data.sources.synthetic.digits import Digits, Letters, PenDigits, StreetDigits
from cl_lightning.data.sources.synthetic.fruits import Fruits
from cl_lightning.data.sources.synthetic.objects import FineObjects, Objects
from cl_lightning.data.sources.synthetic.scripts import CursiveScript, HeadlineScript, SignDigits
from cl_lightning.data.sources.synthetic.textures import Textures

__all__ = [
    "Clothes",
    "CursiveScript",
    "Digits",
    "FineObjects",
    "Fruits",
    "HeadlineScript",
    "Letters",
    "Objects",
    "PenDigits",
    "SignDigits",
    "StreetDigits",
    "Textures",
]
