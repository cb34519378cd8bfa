"""How much a function does, counted: times depend on the machine and on what else it does."""

import sys


def counted(function):
    """Return how many functions a call calls, those in C among them."""
    number = 0

    def count(frame, event, argument):
        nonlocal number
        number += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return number
