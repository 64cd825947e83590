#!/usr/bin/env bash
# qemu_header.sh FILE
# Writes qemu-plugin.h of Debian's sources of the QEMU that is installed to FILE. Nothing is installed.
set -euo pipefail

made=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
apt=(-q -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache")
# The repositories of this machine's configuration, with their sources.
apt-get "${apt[@]}" update --print-uris \
  | sed -n "s#^'\(.*\)/dists/\(.*\)/InRelease'.*#deb-src \1 \2 main#p" > "$work/sources.list"
apt+=(-o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=-)
version=$(dpkg-query -W -f '${source:Version}' qemu-user)
(
  cd "$work"
  apt-get "${apt[@]}" update > /dev/null
  apt-get "${apt[@]}" source --tar-only --download-only "qemu=$version" > /dev/null 2>&1
)
tar -xJf "$work"/qemu_*.orig.tar.xz -O --wildcards '*/include/qemu/qemu-plugin.h' > "$made.part"
mv "$made.part" "$made"
