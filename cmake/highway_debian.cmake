# Which of Debian's source packages of Highway are taken.
include_guard(GLOBAL)

set(edgewise_debian_highway_sha256
    "7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343"   # 1.2.0
    "07b3c1ba2c1096878a85a31a5b9b3757427af963b1141ca904db2f9f4afe0bc2")  # 1.3.0
