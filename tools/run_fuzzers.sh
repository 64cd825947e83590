#!/usr/bin/env bash
# run_fuzzers.sh BUILD SECONDS: each of libFuzzer's programs in BUILD for SECONDS, on all cores.
# Prints for each its executions and coverage. What crashes, takes more than 5 s or more than
# 1 GB is kept in BUILD/found, and ends in failure; grown corpora are in BUILD/corpus.
set -uo pipefail

build=$1
seconds=$2
root=$(cd "$(dirname "$0")/.." && pwd)
cores=$(nproc)
failed=0
for fuzzer in "$build"/native/fuzz/fuzz_*; do
  kind=${fuzzer##*_}
  corpus=$build/corpus/$kind
  log=$build/fuzz_$kind.log
  mkdir -p "$corpus" "$build/found"
  "$fuzzer" -max_total_time="$seconds" -fork="$cores" -timeout=5 -rss_limit_mb=1024 -max_len=16384 \
    -artifact_prefix="$build/found/$kind-" -verbosity=1 \
    "$corpus" "$root/tests/fuzz/corpus/$kind" > "$log" 2>&1
  result=$?
  last=$(grep -E '^#[0-9]+: cov' "$log" | tail -1)
  echo "$kind: $(date -u +%F), $last"
  if [ "$result" -ne 0 ]; then
    failed=1
    echo "$kind: failed (exit code $result); see $log and $build/found/$kind-*"
  fi
done
exit "$failed"
