#!/usr/bin/env bash
# install_cross.sh aarch64|armv7|windows|macos|cortex-m|cortex-m55|wasm32|java
# Installs Debian's cross compiler for a target if it is missing and root runs this, with what of
# QEMU or Wine runs its programs, and for systems GoogleTest's sources; for java a JDK. Else names them
# and fails. For macOS it is Debian's linker, and a compiler from PyPI that is kept in the user's cache.
set -euo pipefail

here=$(dirname "$0")
missing=()
case $1 in
  aarch64) compiler=aarch64-linux-gnu emulator=qemu-aarch64 ;;
  armv7) compiler=arm-linux-gnueabihf emulator=qemu-arm ;;
  windows) compiler=x86_64-w64-mingw32 emulator=wine ;;
  macos | cortex-m | cortex-m55 | wasm32 | java) compiler="" emulator="" ;;
  *)
    echo "[cross] the target must be aarch64, armv7, windows, macos, cortex-m, cortex-m55, wasm32 or" \
      "java; got $1" >&2
    exit 2
    ;;
esac
if [ "$1" = wasm32 ]; then  # acorn: the part of Emscripten that makes its JavaScript small
  command -v em++ > /dev/null || missing+=(emscripten)
  [ -e /usr/share/nodejs/acorn ] || missing+=(node-acorn)
elif [ "$1" = java ]; then
  command -v javac > /dev/null || missing+=(default-jdk-headless)
elif [ "$1" = macos ]; then  # of the same version in Debian 12 and 13
  command -v ld64.lld-19 > /dev/null || missing+=(lld-19)
  command -v llvm-install-name-tool-19 > /dev/null || missing+=(llvm-19)
  [ -e /usr/src/googletest/googletest/CMakeLists.txt ] || missing+=(googletest)
elif [ -z "$compiler" ]; then
  command -v arm-none-eabi-gcc > /dev/null || missing+=(gcc-arm-none-eabi)
  if [ "$1" = cortex-m55 ]; then  # with the C++ library, and what plays a board
    [ -e /usr/lib/arm-none-eabi/lib/libstdc++_nano.a ] || missing+=(libstdc++-arm-none-eabi-newlib)
    command -v qemu-system-arm > /dev/null || missing+=(qemu-system-arm)
  fi
elif [ "$1" = windows ]; then  # with POSIX threads, which std::thread needs
  command -v "$compiler-g++-posix" > /dev/null || missing+=(g++-mingw-w64-x86-64-posix)
  command -v wine > /dev/null || missing+=(wine wine64)
  [ -e /usr/src/googletest/googletest/CMakeLists.txt ] || missing+=(googletest)
else
  command -v "$compiler-g++" > /dev/null || missing+=("g++-$compiler")
  command -v "$emulator" > /dev/null || command -v "$emulator-static" > /dev/null \
    || missing+=(qemu-user)
  [ -e /usr/src/googletest/googletest/CMakeLists.txt ] || missing+=(googletest)
fi

"$here/apt_install.sh" cross "$1" "${missing[@]}"
[ "$1" = macos ] || exit 0

# Under the name by which cmake/toolchains/macos-aarch64.cmake finds it.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/edgewise
folder=$cache/macos-$(sha256sum "$here/macos_sdk.py" | cut -c 1-12)
[ -d "$folder/sdk" ] && exit 0
[ -d "$cache" ] || install -d -m 700 "$cache"
"$here/quiet.sh" build/logs/macos-venv.log "environment for macOS's compiler" \
  python3 -m venv "$folder"
"$here/quiet.sh" build/logs/macos-pip.log "pip install ziglang" \
  "$folder/bin/pip" install --disable-pip-version-check "ziglang>=0.17.1,<0.18"
"$here/quiet.sh" build/logs/macos-sdk.log "headers and libraries of macOS" \
  "$folder/bin/python" "$here/macos_sdk.py" --linker "$(command -v ld64.lld-19)" "$folder/sdk"
