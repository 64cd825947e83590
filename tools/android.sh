#!/usr/bin/env bash
# android.sh API ABI...
# Builds libedgewise_jni.so for each ABI with the NDK that ANDROID_NDK_HOME or ANDROID_NDK_ROOT names,
# and build/android/edgewise.aar of them; API: the first version of Android that it serves. With
# KLEIDIAI_SOURCE_DIR, a clone of Arm's project, libraries for 64-bit Arm have its kernels.
set -euo pipefail

api=$1
shift
ndk=${ANDROID_NDK_HOME:-${ANDROID_NDK_ROOT:-}}
toolchain=$ndk/build/cmake/android.toolchain.cmake
if [ -z "$ndk" ] || [ ! -e "$toolchain" ]; then
  echo "[android] ANDROID_NDK_HOME or ANDROID_NDK_ROOT must be the folder of an NDK; got '$ndk'," \
    "without build/cmake/android.toolchain.cmake; try the NDK r27 of the Android SDK" >&2
  exit 1
fi
major=$(sed -n 's/^Pkg.Revision *= *\([0-9]*\).*/\1/p' "$ndk/source.properties")
if [ "${major:-0}" -lt 26 ]; then  # before it the C++ library has no ranges
  echo "[android] the NDK must be r26 or later; got r${major:-unknown} in '$ndk'; try r27" >&2
  exit 1
fi

here=$(dirname "$0")
libraries=()
for abi in "$@"; do
  build=build/android/$abi
  "$here/quiet.sh" --show '^-- XNNPACK' "build/logs/android-$abi-configure.log" "configure for $abi" \
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release --toolchain "$toolchain" \
    -DANDROID_ABI="$abi" -DANDROID_PLATFORM="android-$api" -DANDROID_STL=c++_static \
    ${KLEIDIAI_SOURCE_DIR:+-DEDGEWISE_KLEIDIAI_SOURCE_DIR="$KLEIDIAI_SOURCE_DIR"} \
    -DEDGEWISE_BUILD_JAVA=ON -DEDGEWISE_BUILD_C=OFF -DEDGEWISE_BUILD_TOOLS=OFF
  "$here/quiet.sh" "build/logs/android-$abi.log" "build for $abi" \
    cmake --build "$build" --target edgewise_java edgewise_runtime edgewise_kernels \
    edgewise_xnnpack_backend
  rm -rf "$build/installed"
  "$here/quiet.sh" "build/logs/android-$abi-install.log" "install for $abi" \
    cmake --install "$build" --component devel --prefix "$build/installed"
  libraries+=(--library "$abi=$build/native/java/stripped/libedgewise_jni.so")
done
build=build/android/$1
"${PYTHON:-python3}" "$here/aar.py" --out build/android --jar "$build/native/java/edgewise.jar" \
  --ndk "$major" --api "$api" --licences "$build/installed/share/edgewise/licenses" \
  --parts "$build/native/java/parts.txt" "${libraries[@]}"
