"""Mutants that no test can notice, with the reason: (file, line before, line after)."""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "src/edgewise/edge/canonicalize/views.py",
        "return first_operand(node)",
        "return None",
    ): (
        "of a vector's transpose: None leaves the node to PyTorch's decomposition, which is the "
        "vector itself; elsewhere tests of the spelling notice it"
    ),
    (
        "src/edgewise/edge/canonicalize/copies.py",
        'return None if named["train"] and named["p"] > 0 else first_operand(node)',
        "return None",
    ): "PyTorch's decomposition of a dropout that does nothing is its operand, too",
    (
        "src/edgewise/backends/xnnpack/operators/elementwise.py",
        "SURE = (-200.0, 200.0)",
        "SURE = (-(2 * 200.0), 200.0)",
    ): ("exp(-104) rounds to 0 in float32: a sigmoid is 0 at both bounds; NaN begins at 1e26"),
    ("native/core/data_file.cpp", "uint64_t end = 0;", "uint64_t end = 1;"): (
        "checked_add writes it before it is read, or the function has returned"
    ),
    ("native/core/read_values.cpp", "size_t end = 0;", "size_t end = 1;"): (
        "checked_add writes it before it is read, or the function has returned"
    ),
    (
        "native/core/pte_file.cpp",
        "for (const auto& [key, segment] : named_) sum += segments_[segment].size();",
        "for (const auto& [key, segment] : named_) sum -= segments_[segment].size();",
    ): "how much is expected chooses only where packed weights lie, which changes speed",
    (
        "src/edgewise/backends/xnnpack/operators/reduce.py",
        "return _reduced(to, x, Ref(value, identity(4)), first, last)",
        "return _reduced(to, x, Ref(value, identity(1)), first, last)",
    ): "what follows asks only whether the order is that of the memory",
    (
        "src/edgewise/edge/canonicalize/spelling.py",
        "return call(graph, aten.bmm.default, (a, b), node, fake(node))",
        "return None",
    ): "PyTorch's decomposition of a product of two batches is the same bmm",
    (
        "native/core/read_method.cpp",
        "EDGEWISE_RETURN_IF_ERROR(budget.take(specs->size()));",
        "(void)0;",
    ): "flatbuffers' own limit of tables comes before this one",
    (
        "src/edgewise/backends/ethosu/operators/reductions.py",
        "if dim is None or len(shape) < 2:",
        "if dim is None or len(shape) < 1:",
    ): "a vector is refused by the rule before this one",
    (
        "src/edgewise/backends/ethosu/operators/bits.py",
        't = to.b.binary("MAXIMUM", t, to.b.number(half - 2**31, t))',
        't = to.b.binary("MAXIMUM", t, to.b.number(half + 2**31, t))',
    ): "both are the same number of 32 bits",
    (
        "native/core/read_instructions.cpp",
        "EDGEWISE_RETURN_IF_ERROR(budget.take(instructions->size()));",
        "(void)0;",
    ): "flatbuffers' own limit of tables comes before this one",
    (
        "native/core/data_file.cpp",
        "constexpr flatbuffers::uoffset_t kMaxTables = 1 << 24;",
        "constexpr flatbuffers::uoffset_t kMaxTables = 2 << 24;",
    ): "the 16 million tables that tell would be a file of 200 MB: the limit is there for time",
    (
        "src/edgewise/backends/xnnpack/operators/selection.py",
        "if len(pieces) > 4 and x.perm[-1] == dim:",
        "if len(pieces) < 4 and x.perm[-1] == dim:",
    ): "in which order values lie while they are taken changes speed alone",
    (
        "native/kernels/cache_attention.cpp",
        "std::fill_n(result, count * depth_, 0.0f);",
        "std::fill_n(result, count / depth_, 0.0f);",
    ): "what lies there is multiplied by exp(-inf), 0: only NaN in fresh memory would show",
    (
        "src/edgewise/backends/ethosu/operators/lines.py",
        "if steps != 1:",
        "if steps != 0:",
    ): "a product with one more: the same indices",
    (
        "src/edgewise/backends/ethosu/operators/selection.py",
        'index = indices(to, args["indices"], sizes(args["weight"])[0])',
        'index = indices(to, args["indices"], sizes(args["weight"])[1])',
    ): "the size is for indices below zero, which an embedding refuses",
    (
        "native/kernels/activation.cpp",
        "static constexpr bool kFloatingOnly = true;",
        "static constexpr bool kFloatingOnly = false;",
    ): "that the member is there counts, not its value",
    (
        "native/kernels/masks.cpp",
        "for (int64_t i = 0; i < numel; ++i, walk.next()) {",
        "for (int64_t i = 0; i <= numel; ++i, walk.next()) {",
    ): "one byte is read behind the mask, on which the tests' run with AddressSanitizer fails",
    ("native/core/pte_file.cpp", "bytes_.release(bytes);", ";"): (
        "how much memory is resident, which benchmarks/memory.py measures"
    ),
}
