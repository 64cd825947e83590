#!/usr/bin/env bash
# debian_arm_python.sh VERSION FOLDER
# Unpacks Debian's Python for 64-bit Arm, with the libraries that it needs, into FOLDER, where
# qemu-user runs it: qemu-aarch64 -L FOLDER FOLDER/usr/bin/pythonVERSION. Nothing is installed.
set -euo pipefail

version=$1
folder=$2
command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || {
  echo "[debian_arm_python] needs apt-get and dpkg-deb" >&2
  exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs"
touch "$work/status"
# The system's own sources, for another architecture: what it has installed stays as it is.
apt=(-q -o "Dir::State::lists=$work/lists" -o "Dir::State::status=$work/status"
  -o "Dir::Cache=$work/cache" -o APT::Architecture=arm64 -o APT::Architectures=arm64)
apt-get "${apt[@]}" update > /dev/null
(cd "$work/debs" && apt-get "${apt[@]}" download "python$version-minimal" \
  "libpython$version-minimal" "libpython$version-stdlib" libc6 libgcc-s1 libstdc++6 zlib1g \
  libexpat1 libssl3 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1 libcrypt1 > /dev/null)
mkdir -p "$folder"
for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$folder"; done
