#!/usr/bin/env bash
# build.sh FOLDER [COMPILER FLAGS]
# Builds the counter, FOLDER/count.so, with qemu-plugin.h of Debian's sources of the QEMU that is
# installed, which is fetched to FOLDER if it is not there. Nothing is installed.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=$(cd "$1" && pwd)
shift

fetch_header() {
  local work
  work=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  local apt=(-q -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache")
  # The repositories of this machine's configuration, with their sources.
  apt-get "${apt[@]}" update --print-uris \
    | sed -n "s#^'\(.*\)/dists/\(.*\)/InRelease'.*#deb-src \1 \2 main#p" > "$work/sources.list"
  apt+=(-o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=-)
  local version
  version=$(dpkg-query -W -f '${source:Version}' qemu-user)
  (
    cd "$work"
    apt-get "${apt[@]}" update > /dev/null
    apt-get "${apt[@]}" source --tar-only --download-only "qemu=$version" > /dev/null 2>&1
  )
  tar -xJf "$work"/qemu_*.orig.tar.xz -O --wildcards '*/include/qemu/qemu-plugin.h' > "$1.part"
  mv "$1.part" "$1"
}

[ -e "$folder/qemu-plugin.h" ] || fetch_header "$folder/qemu-plugin.h"
gcc -O2 -Wall -Wextra "$@" -shared -fPIC "-I$folder" "$here/count.c" -o "$folder/count.so"
