#!/usr/bin/env bash
# sme_qemu.sh
# Prints a qemu-aarch64 that plays SME2, as QEMU does from 10.1 on: the installed one, or that of a
# later Debian, which is fetched from the mirror that this machine uses, checked by apt, to the user's
# cache. Nothing is installed.
set -euo pipefail

fail() {
  echo "[sme_qemu] needs qemu-aarch64 10.1 or later: $1; try a later qemu-user" >&2
  exit 1
}

is_new() { # PROGRAM
  local version
  version=$("$1" --version 2> /dev/null | sed -n '1s/.*version \([0-9.]*\).*/\1/p')
  [ -n "$version" ] && [ "$(printf '%s\n' 10.1 "$version" | sort -V | head -1)" = 10.1 ]
}

if installed=$(command -v qemu-aarch64) && is_new "$installed"; then
  echo "$installed"
  exit 0
fi
folder=${XDG_CACHE_HOME:-$HOME/.cache}/edgewise/qemu
program=$folder/usr/bin/qemu-aarch64
if is_new "$program"; then
  echo "$program"
  exit 0
fi
command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || fail "there is no apt"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
mirror=$(apt-get -q -o "Dir::State::lists=$work/lists" update --print-uris \
  | sed -n "s#^'\(.*\)/dists/[^/]*/InRelease'.*#\1#p" | grep -v security | head -1)
[ -n "$mirror" ] || fail "apt has no mirror"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
for suite in forky sid; do
  echo "deb [signed-by=$keyring] $mirror $suite main" > "$work/sources.list"
  apt=(-q -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=-
    -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o Acquire::Retries=3)
  (cd "$work" && apt-get "${apt[@]}" update && apt-get "${apt[@]}" download "qemu-user/$suite") \
    > "$work/log" 2>&1 || continue
  for package in "$work"/qemu-user_*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$work" ./usr/bin/qemu-aarch64 || continue
    is_new "$work/usr/bin/qemu-aarch64" || continue
    mkdir -p "$(dirname "$program")"
    mv "$work/usr/bin/qemu-aarch64" "$program"
    echo "$program"
    exit 0
  done
done
fail "the mirror has none"
