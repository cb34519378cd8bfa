"""What families share that work on segments; of their kernels, see `segment_lists.cuh`."""

LISTS = 12  # of segments by size, at most: as `segment_lists.cuh` has them
LIST_THREADS, LIST_ITEMS = 256, 1024  # of a block that writes them
MOST_BLOCKS = 2**31 - 1  # of a launch

# Offsets of segments that are all of one length, in place of arrays of them.
ROWS = """struct start_offsets_in_t {
  long long length;
  __device__ __forceinline__ long long operator[](long long row) const { return row * length; }
};
struct end_offsets_in_t {
  long long length;
  __device__ __forceinline__ long long operator[](long long row) const { return (row + 1) * length; }
};"""
