#!/usr/bin/env bash
# run_fuzzers.sh BUILD SECONDS: each of libFuzzer's programs in BUILD for SECONDS, one after the
# other, then the readers in Python (tests/fuzz/kinds.py).
# Prints of each the date, its executions and what they reached. What crashes, takes more than 5 s
# or more than 1 GB is kept in BUILD/found, and ends in failure; grown corpora are in BUILD/corpus.
set -uo pipefail

build=$1
seconds=$2
root=$(cd "$(dirname "$0")/.." && pwd)
failed=0
mkdir -p "$build/found"
for fuzzer in "$build"/native/fuzz/fuzz_*; do
  kind=${fuzzer##*_}
  corpus=$build/corpus/$kind
  log=$build/fuzz_$kind.log
  mkdir -p "$corpus"
  # -reload=0: nobody else adds to the corpus.
  "$fuzzer" -max_total_time="$seconds" -reload=0 -timeout=5 -rss_limit_mb=1024 -max_len=16384 \
    -artifact_prefix="$build/found/$kind-" \
    "$corpus" "$root/tests/fuzz/corpus/$kind" > "$log" 2>&1
  result=$?
  last=$(grep -E '^#[0-9]+' "$log" | tail -1 | sed -E 's/^#([0-9]+)\s+\S+\s+cov: ([0-9]+).*/\1 executions, \2 edges/')
  echo "$kind: $(date -u +%F), ${last:-no execution}"
  if [ "$result" -ne 0 ]; then
    failed=1
    echo "$kind: failed (exit code $result); see $log and $build/found/$kind-*"
  fi
done
"$root/.venv/bin/python" -W ignore "$root/tests/fuzz" --seconds "$seconds" --found "$build/found" ||
  failed=1
exit "$failed"
