#!/usr/bin/env bash
# quiet.sh [--show REGEX] LOG WHAT COMMAND...
# Runs COMMAND with its output in LOG. Prints WHAT and the time it took, the lines that match
# REGEX as they come, and the end of LOG if the command fails.
set -uo pipefail

show='^$a'  # matches nothing
if [ "$1" = --show ]; then
  show=$2
  shift 2
fi
log=$1
what=$2
shift 2

mkdir -p "$(dirname "$log")"
started=$SECONDS
"$@" < /dev/null 2>&1 | tee "$log" | grep --line-buffered -E "$show"
status=${PIPESTATUS[0]}
if [ "$status" -ne 0 ]; then
  echo "== $what: failed (exit code $status); the end of $log:" >&2
  tail -n 60 "$log" >&2
  exit "$status"
fi
took=$((SECONDS - started))
if [ "$took" -ge 1 ]; then
  echo "$what: done in $took s"
fi
