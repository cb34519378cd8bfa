"""What numbers are called in C++, by the letter and size of their dtypes, as in `structs.code_of`."""

from __future__ import annotations

from typing import Final

NUMBERS: Final = {
    "b1": "bool",
    "i1": "signed char",
    "i2": "short",
    "i4": "int",
    "i8": "long long",
    "u1": "unsigned char",
    "u2": "unsigned short",
    "u4": "unsigned int",
    "u8": "unsigned long long",
    "f2": "__half",
    "bf2": "__nv_bfloat16",
    "f4": "float",
    "f8": "double",
}
