#include "reduce.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

using Block = std::byte[kReductionBlock * sizeof(int64_t)];

// Elements as the loops take them: where they are, or read into a block.
const void* elements_at(const View& input, int64_t offset, int64_t stride, int64_t count,
                        ScalarType read, Block& block) {
  const std::byte* source = input.at(offset);
  if (input.type == read && stride == 1) return source;
  read_block(input.type, source, stride, count, read, block);
  return block;
}

struct Walker {
  Walker(const Reduction& of, const ReductionLoops& by, const void* from)
      : plan(of), loops(by), initial(from), elements(of.reduced_sizes, {&of.reduced_strides}) {}

  const Reduction& plan;
  const ReductionLoops& loops;
  const void* initial;
  const Loop<1> elements;
  alignas(64) Block blocks[kReductionRows];

  // The elements of `count` results that are `apart` from one another, a few rows at a time:
  // take(rows, row count).
  template <typename Take>
  void rows(int64_t base, int64_t apart, int64_t count, Take&& take) {
    const void* held[kReductionRows];
    int64_t row_count = 0;
    const auto size = static_cast<int64_t>(element_size(loops.read));
    elements.run([&](const auto& inner, int64_t n, const auto& steps) {
      int64_t i = 0;
      if (plan.input.type != loops.read && apart == 1 && steps[0] == count) {
        // Rows follow one another: as many as a block holds are read together.
        const int64_t most = kReductionBlock / count;
        for (int64_t together = 0; most > 1 && i < n; i += together) {
          together = std::min(most, n - i);
          if (row_count > 0) take(held, row_count);
          read_block(plan.input.type, plan.input.at(base + inner[0] + i * count), 1,
                     together * count, loops.read, blocks[0]);
          for (int64_t k = 0; k < together; k += row_count) {
            row_count = std::min(kReductionRows, together - k);
            for (int64_t r = 0; r < row_count; ++r) held[r] = blocks[0] + (k + r) * count * size;
            take(held, row_count);
          }
          row_count = 0;
        }
      }
      for (; i < n; ++i) {
        held[row_count] = elements_at(plan.input, base + inner[0] + i * steps[0], apart, count,
                                      loops.read, blocks[row_count]);
        if (++row_count == kReductionRows) {
          take(held, row_count);
          row_count = 0;
        }
      }
    });
    if (row_count > 0) take(held, row_count);
  }

  void columns(int64_t base, int64_t apart, int64_t count, const View& out, int64_t to,
               int64_t step) {
    alignas(64) Block totals, results;
    loops.start(initial, totals, count);
    rows(base, apart, count, [&](const void* const* held, int64_t row_count) {
      loops.add(totals, held, row_count, count);
    });
    loops.results(initial, totals, results, count);
    write_block(loops.result, results, count, out.type, out.at(to), step);
  }

  // States that take blocks are given those of a few results, transposed.
  void transposed(int64_t base, int64_t count, const View& out, int64_t to, int64_t step) {
    constexpr int64_t kHeight = 64;
    double held[kTurned][kHeight];
    alignas(16) std::byte states[kTurned][kMostStateBytes];
    for (int64_t j = 0; j < count; ++j) std::memcpy(states[j], initial, loops.state_size);
    int64_t height = 0;
    const auto flush = [&] {
      for (int64_t j = 0; j < count; ++j) loops.row(states[j], held[j], height);
      height = 0;
    };
    rows(base, 1, count, [&](const void* const* from, int64_t row_count) {
      for (int64_t k = 0; k < row_count; ++k, ++height) {
        const auto* row = static_cast<const double*>(from[k]);
        for (int64_t j = 0; j < count; ++j) held[j][height] = row[j];
      }
      if (height + kReductionRows > kHeight) flush();
    });
    flush();
    for (int64_t j = 0; j < count; ++j) result(states[j], out, to + j * step);
  }

  // `count` results whose elements are neighbours, `apart` from one result to the next.
  void each(int64_t base, int64_t apart, int64_t count, const View& out, int64_t to, int64_t step) {
    constexpr int64_t kTogether = 64;
    alignas(64) std::byte results[kTogether * sizeof(int64_t)];
    const size_t size = element_size(loops.result);
    for (int64_t first = 0; first < count; first += kTogether) {
      const int64_t n = std::min(kTogether, count - first);
      for (int64_t r = 0; r < n; ++r) {
        one(base + (first + r) * apart, results + static_cast<size_t>(r) * size);
      }
      write_block(loops.result, results, n, out.type, out.at(to + first * step), step);
    }
  }

  void one(int64_t base, void* value) {
    alignas(16) std::byte state[kMostStateBytes];
    std::memcpy(state, initial, loops.state_size);
    elements.run([&](const auto& inner, int64_t n, const auto& steps) {
      const bool direct = plan.input.type == loops.read && steps[0] == 1;
      const int64_t most = direct ? n : kReductionBlock;
      for (int64_t start = 0; start < n; start += most) {
        const int64_t part = std::min(most, n - start);
        const int64_t offset = base + inner[0] + start * steps[0];
        loops.row(state, elements_at(plan.input, offset, steps[0], part, loops.read, blocks[0]),
                  part);
      }
    });
    loops.row_result(state, value);
  }

  void result(const void* state, const View& out, int64_t to) {
    alignas(8) std::byte value[8];
    loops.row_result(state, value);
    write_block(loops.result, value, 1, out.type, out.at(to), 1);
  }

  static constexpr int64_t kTurned = 16;
};

}  // namespace

Status plan_reduction(const Tensor& self, std::span<const int64_t> dims, bool keepdim, Tensor* out,
                      Reduction& plan) {
  if (!is_computable(self.type())) {
    return error(Code::kUnsupported, "computes on floating, integer and bool types; got %s",
                 self.describe().c_str());
  }
  uint32_t reduced = dims.empty() ? ~0u : 0;
  for (int64_t dim : dims) {
    EDGEWISE_RETURN_IF_ERROR(normalize_dim(dim, self.rank()));
    if (reduced & (1u << dim)) {
      return error(Code::kInvalidArgument, "a dimension is reduced once; got %s",
                   describe(dims).c_str());
    }
    reduced |= 1u << dim;
  }
  plan.input = view_of(self);
  Dims shape;
  for (size_t dim = 0; dim < self.rank(); ++dim) {
    const bool goes = reduced & (1u << dim);
    (goes ? plan.reduced_sizes : plan.kept_sizes).push(plan.input.sizes[dim]);
    (goes ? plan.reduced_strides : plan.kept_strides).push(plan.input.strides[dim]);
    if (!goes || keepdim) shape.push(goes ? 1 : plan.input.sizes[dim]);
  }
  EDGEWISE_RETURN_IF_ERROR(out->resize(shape));
  for (size_t dim = 0, out_dim = 0; dim < self.rank(); ++dim) {
    const bool goes = reduced & (1u << dim);
    if (!goes) plan.out_strides.push(out->strides()[out_dim]);
    if (!goes || keepdim) ++out_dim;
  }
  return {};
}

void run_reduction(const Reduction& plan, const View& out, const ReductionLoops& loops,
                   const void* initial) {
  const Loop<2> results(plan.kept_sizes, {&plan.out_strides, &plan.kept_strides});
  Walker walker(plan, loops, initial);
  bool together = true;  // elements of one result are neighbours
  walker.elements.run(
      [&](const auto&, int64_t n, const auto& steps) { together = n < 2 || steps[0] == 1; });
  // Results of few elements each are taken as columns, too, of rows that are gathered.
  constexpr int64_t kFew = 24, kLeast = 8;
  const bool gathers = loops.add != nullptr && plan.reduced_count() <= kFew;
  results.run([&](const auto& offsets, int64_t count, const auto& steps) {
    const bool apart = together || steps[1] != 1;
    if (count < 2 || (apart && !(gathers && count >= kLeast))) {
      return walker.each(offsets[1], steps[1], count, out, offsets[0], steps[0]);
    }
    const int64_t most = loops.add ? kReductionBlock : Walker::kTurned;
    for (int64_t r = 0; r < count; r += most) {
      const int64_t width = std::min(most, count - r), to = offsets[0] + r * steps[0];
      if (loops.add) {
        walker.columns(offsets[1] + r * steps[1], steps[1], width, out, to, steps[0]);
      } else {
        walker.transposed(offsets[1] + r, width, out, to, steps[0]);
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
