# -DEDGEWISE_MAX_PAGE_SIZE=16384: the shared libraries load where pages have up to so many bytes, as
# on 64-bit Android from 15 on, whose pages may have 16 KiB.
include_guard(GLOBAL)

set(edgewise_page_size_default "")
if(ANDROID AND CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(edgewise_page_size_default 16384)
endif()
set(EDGEWISE_MAX_PAGE_SIZE "${edgewise_page_size_default}" CACHE STRING
    "Largest page, in bytes, that shared libraries are laid out for; empty: the linker's own")

# For a target that is a shared library.
function(edgewise_page_size target)
  if(EDGEWISE_MAX_PAGE_SIZE)
    target_link_options(${target} PRIVATE "LINKER:-z,max-page-size=${EDGEWISE_MAX_PAGE_SIZE}")
  endif()
endfunction()
