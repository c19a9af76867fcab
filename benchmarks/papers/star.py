"""The tables of the STAR paper (Zhang et al., ICLR 2024), as printed; 1 FLOP of the paper is 1 multiply-add."""

from collections.abc import Mapping

from star_alpha import TABLE_3
from star_plain import TABLE_2, TABLE_4, TABLE_5, TABLE_6, TABLE_9
from star_tuned import TABLE_1, TABLE_7, TABLE_8
from tables import Table

__all__ = ["TABLES"]

TABLES: Mapping[str, Table] = {
    "star-1": TABLE_1,
    "star-2": TABLE_2,
    "star-3": TABLE_3,
    "star-4": TABLE_4,
    "star-5": TABLE_5,
    "star-6": TABLE_6,
    "star-7": TABLE_7,
    "star-8": TABLE_8,
    "star-9": TABLE_9,
}
