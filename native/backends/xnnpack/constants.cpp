#include "backends/xnnpack/constants.h"

#include <cinttypes>

#include "core/checked.h"

namespace edgewise::xnnpack {
namespace {

Status no_entry(uint32_t index, size_t count) {
  return error(Code::kInvalidProgram,
               "[xnnpack constants] a constant's index must be below %zu; got %u", count, index);
}

Result<Constant> inline_constant(const Payload& payload, uint32_t index) {
  const auto* buffers = payload.graph->constant_buffer();
  const size_t count = buffers == nullptr ? 0 : buffers->size();
  if (index >= count) return no_entry(index, count);
  const auto* storage = buffers->Get(index)->storage();
  if (storage == nullptr) {
    return error(Code::kInvalidProgram, "[xnnpack constants] constant %u must have bytes; got none",
                 index);
  }
  return Constant{std::as_bytes(std::span(storage->data(), storage->size()))};
}

}  // namespace

Result<Constant> find_constant(const Payload& payload, const NamedData* named_data,
                               uint32_t index) {
  const auto* entries = payload.graph->constant_data();
  const size_t count = entries == nullptr ? 0 : entries->size();
  if (!payload.has_header && count == 0) return inline_constant(payload, index);
  if (index >= count) return no_entry(index, count);
  const fb::ConstantDataOffset& entry = *entries->Get(index);
  const auto* key = entry.named_key();
  if (key != nullptr && key->size() != 0) {
    if (named_data == nullptr) {
      return error(Code::kInvalidProgram,
                   "[xnnpack constants] constant %u needs named data \"%s\"; the program has none",
                   index, key->c_str());
    }
    auto found = named_data->find(key->string_view());
    if (!found.ok()) return found.status().within("xnnpack constants");
    if (found->size() < entry.size()) {
      return error(Code::kInvalidProgram,
                   "[xnnpack constants] named data \"%s\" must have %" PRIu64 " bytes; got %zu",
                   key->c_str(), entry.size(), found->size());
    }
    return Constant{*found, true};
  }
  if (!in_range(entry.offset(), entry.size(), payload.constants.size())) {
    return error(Code::kInvalidProgram,
                 "[xnnpack constants] constant %u must lie in the payload's %zu bytes of "
                 "constants; got offset %" PRIu64 " and length %" PRIu64,
                 index, payload.constants.size(), entry.offset(), entry.size());
  }
  return Constant{payload.constants.subspan(static_cast<size_t>(entry.offset()),
                                            static_cast<size_t>(entry.size()))};
}

}  // namespace edgewise::xnnpack
