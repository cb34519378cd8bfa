"""What families share that work on segments."""

# Offsets of segments that are all of one length, in place of arrays of them.
ROWS = """struct start_offsets_in_t {
  long long length;
  __device__ __forceinline__ long long operator[](long long row) const { return row * length; }
};
struct end_offsets_in_t {
  long long length;
  __device__ __forceinline__ long long operator[](long long row) const { return (row + 1) * length; }
};"""
