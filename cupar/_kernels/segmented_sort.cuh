// Sorts of segments, each by itself, by size.
//
// - A key becomes a word that sorts as an unsigned integer. With values, a word also holds where in its
//   segment the key was: so words differ, every way of sorting them is stable, and a value is moved once.
// - Short segments are sorted by 4 to 32 lanes, in registers, by a bitonic network. Each lane has
//   successive positions in it, so that most of its steps are within lanes. The words to begin with may be in
//   any order: that they are loaded side by side costs nothing.
// - Others are sorted by a team of warps, in shared memory.
// - Long ones are cut into tiles, for many blocks, and sorted digit by digit.
//
// With offsets, a kernel before these writes a list of segments for each size; they are never read back.
// Segments do not overlap, so no list is longer than the items divided by the least length in it.
//
// Given: d_in_keys_v, d_in_values_v (void: keys alone), start_offsets_in_t, end_offsets_in_t, is_descending;
// CUPAR_OFFSETS unless segments are rows; CUPAR_512 if there are groups of lanes for 512 items; the policy:
// group_threads, team_items, team_blocks, digit_threads, digit_items, and rows_threads, which plans need.
using starts_t     = start_offsets_in_t;
using ends_t       = end_offsets_in_t;
using sorted_value = d_in_values_v;

#include "segmented_sort_groups.cuh"
#include "segmented_sort_long.cuh"
#include "segmented_sort_teams.cuh"

CUPAR_FACTS(group_threads, team_threads, team_items, team_bytes(1), digit_threads, tile_items, passes,
            sizeof(long_segment), sizeof(bits), has_values ? sizeof(value) : 0, rows_threads)
