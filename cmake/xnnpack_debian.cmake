# XNNPACK and what it depends on, of Debian's source packages.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/debian_source.cmake")

set(edgewise_debian_xnnpack_version "20241108.4ea82e5")
set(edgewise_debian_xnnpack_sha256
    "90bde2caef0f880f627bab0dc805a86c4b8070cd98e3243db3046ab3f3be1a99")
set(edgewise_debian_fxdiv_sha256  # 20200417.b408327
    "7953482badaf4cb34026c3487c257b8e4ab2df061c019bd6fabbbc12ad52c44b")
set(edgewise_debian_cpuinfo_sha256  # 20250905.877328f
    "557ca404a3836b9f335a3a06b65ff9fe9dbaaefab7fb5c0185f53d9f33615a10")
# 20251020.0e6ca13, which lets the calling thread go on without workers that sleep; else
# 20240616.560c60d, which a stable suite keeps.
set(edgewise_debian_pthreadpool_sha256
    "7a385b6585abe8f8658952c50b44a1dabe200de2c88eabe65d15168b8a82295c"
    "4cc3cbd933b28131d2a34edc54f76af9fb41bc490af5eae1a5bd3cd07ea90708")
set(edgewise_debian_packages xnnpack fxdiv cpuinfo pthreadpool)
set(edgewise_debian_pins "")
foreach(package IN LISTS edgewise_debian_packages)
  list(APPEND edgewise_debian_pins "${edgewise_debian_${package}_sha256}")
endforeach()
