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
        (("f4", "f4", "i8", None), "end_offsets_in: expected"),
        (("f4", "f4", "i8", "i8", "f4"), "start_offsets_out: expected integers"),
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
    with pytest.raises(TypeError, match="d_out_num_items: this SegmentedCopy was built without it"):
        copy.run(x, out, 2, starts, ends, to, d_out_num_items=ends)


def test_calls_of_segments_one_after_another_are_checked():
    x, out, count = np.arange(9.0), np.full(9, -1.0), np.zeros(1, "i4")
    starts, ends = np.array([5, 0]), np.array([9, 3])
    with pytest.raises(TypeError, match="d_out_num_items: expected integers"):
        cupar.segmented_copy(x, out, starts, ends, d_out_num_items=x, cc="cpu")
    copy = cupar.segmented_copy(x, out, starts, ends, d_out_num_items=count, cc="cpu")
    with pytest.raises(TypeError, match="start_offsets_out: this SegmentedCopy was built without it"):
        copy.run(x, out, 2, starts, ends, starts, d_out_num_items=count)
    with pytest.raises(ValueError, match="max_items: expected 0 or more, got -1"):
        copy.run(x, out, 2, starts, ends, d_out_num_items=count, max_items=-1)
    with pytest.raises(ValueError, match=r"end_offsets_in\[0\]: expected at most 8, the items of d_in"):
        copy.run(x[:8], out, 2, starts, ends, d_out_num_items=count)
    copy.run(x, out, 2, starts, ends, d_out_num_items=count, max_items=5)
    assert out.tolist() == [5, 6, 7, 8, 0, -1, -1, -1, -1] and count == 7
    copy.run(x, out[:6], 2, starts, ends, d_out_num_items=count)  # on the CPU as many as there is room for
    assert out.tolist() == [5, 6, 7, 8, 0, 1, -1, -1, -1] and count == 7
    copy.run(x, out, 0, starts, ends, d_out_num_items=count)
    assert count == 0
