"""Data sets drawn on this machine: a stand-in for every data set of the papers, nothing downloaded."""

from cl_lightning.data.synthetic.digits import Digits, Letters, PenDigits, StreetDigits

__all__ = ["Digits", "Letters", "PenDigits", "StreetDigits"]
