// EDGEWISE_CLONES before a function: it is compiled for several CPUs, and the one that fits is
// taken when the program is loaded. Its helpers must be inlined.
#pragma once

// The loader chooses by the CPU. Sanitizers are not ready when it does.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define EDGEWISE_CLONES [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define EDGEWISE_CLONES
#endif
