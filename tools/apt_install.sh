#!/usr/bin/env bash
# apt_install.sh WHERE WHAT [PACKAGE...]
# Installs Debian packages that are missing and that WHAT needs, if root runs this on a machine with
# apt; else names them and fails. WHERE: the part of the project that asks.
set -euo pipefail

where=$1 what=$2
shift 2
[ "$#" -gt 0 ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
  echo "[$where] $what needs packages that are missing: $*" >&2
  echo "        try: sudo apt-get install $*" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
quiet=$(dirname "$0")/quiet.sh
"$quiet" build/logs/apt-update.log "apt-get update" apt-get -q update
"$quiet" build/logs/apt-install.log "apt-get install $*" \
  apt-get -q install -y --no-install-recommends "$@"
