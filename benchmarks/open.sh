#!/usr/bin/env bash
# Measures, on a machine with a GPU, what benchmarks have not measured on one yet, or not since it changed; each
# as a table and as JSON.
#
#     benchmarks/open.sh FOLDER [NAME...]
#
# Without names, all; one that fails does not keep the others from running, and one that is not here fails.
# A line leaves this file when its figures are in benchmarks/results/.
set -uo pipefail
cd "$(dirname "$0")/.."
out="${1:?the folder that takes tables and JSON}"
shift
mkdir -p "$out"
wanted=" $* "
known=()
failed=()

# measure NAME COMMAND...: at most 10 minutes; interrupted then, so that tests say which of them failed. All of
# them take 4 minutes on two H200 with 26 workers: if they take 10, one hangs, and says where after five.
measure() {
  local name="$1"
  shift
  known+=("$name")
  [[ "$wanted" == "  " || "$wanted" == *" $name "* ]] || return 0
  echo "== $name: $*"
  timeout -s INT 600 "$@" 2>&1 | tee "$out/$name.txt" || failed+=("$name")
}

measure tests env CUPAR_GPU_REPORT="$out/REPORT.json" python -m pytest -n 16 -rf tests/gpu tests/results
measure segments python benchmarks/segments.py --json "$out/segments.json"
measure cold_start python benchmarks/cold_start.py --json "$out/cold_start.json"
measure whole_calls_jax python benchmarks/whole_calls.py --library jax --json "$out/whole_calls_jax.json"
measure gpu_time python benchmarks/gpu_time.py --json "$out/gpu_time.json"
measure tune cupar tune --all --dry-run --export --seconds 560

for name; do
  [[ " ${known[*]} " == *" $name "* ]] || failed+=("$name, which is none of ${known[*]}")
done
[ ${#failed[@]} -eq 0 ] || echo "failed: ${failed[*]}"
exit ${#failed[@]}
