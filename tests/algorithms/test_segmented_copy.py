"""What copies of segments refuse."""

import numpy as np
import pytest

import cupar


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("f4", "i4", "i8", "i8", "i8"), "d_out: expected float32, .* got int32"),
        (("f4", "f4", "f8", "i8", "i8"), "start_offsets_in: expected integers"),
        (("f4", "f4", "i8", "f8", "i8"), "end_offsets_in: expected integers"),
        (("f4", "f4", "i8", "i8", None), "start_offsets_out: expected"),
    ],
)
def test_what_does_not_go_together_is_refused(given, message):
    with pytest.raises(TypeError, match=message):
        cupar.segmented_copy(*given, cc=90)


def test_calls_are_checked():
    x, out, starts, ends, to = (
        np.arange(9.0),
        np.zeros(9),
        np.array([0, 5]),
        np.array([3, 9]),
        np.array([4, 0]),
    )
    copy = cupar.segmented_copy(x, out, starts, ends, to, cc="cpu")
    with pytest.raises(ValueError, match="num_segments: expected 0 or more, got -1"):
        copy.run(x, out, -1, starts, ends, to)
    with pytest.raises(ValueError, match=f"num_segments: expected at most {2**33 - 1}, got {2**33}"):
        copy.run(x, out, 2**33, starts, ends, to)
    with pytest.raises(ValueError, match="start_offsets_in: needs at least 3 items, got an array of 2"):
        copy.run(x, out, 3, starts, ends, to)
    with pytest.raises(ValueError, match="d_out: expected an array of its own, got the one of d_in"):
        copy.run(x, x, 2, starts, ends, to)
    with pytest.raises(ValueError, match=r"start_offsets_out\[0\]: expected room for the segment in d_out"):
        copy.run(x, out, 2, starts, ends, np.array([7, 0]))
    copy.run(x, out, 2, starts, ends, to)
    assert out.tolist() == [5, 6, 7, 8, 0, 1, 2, 0, 0]
