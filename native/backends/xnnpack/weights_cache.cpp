#include "backends/xnnpack/weights_cache.h"

#include <cstdint>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "backends/xnnpack/allocator.h"
#include "backends/xnnpack/limit_cpu.h"
#include "backends/xnnpack/non_temporal_loads.h"
#include "core/guarded.h"
#include "core/memory.h"
#include "edgewise/tensor.h"

namespace edgewise::xnnpack {
namespace {

constexpr size_t kNotFound = SIZE_MAX;

// XNNPACK wants offsets into one block of memory; addresses do as well, and nothing ever moves.
size_t offset_of(const PackedWeights::Buffer& buffer) {
  return reinterpret_cast<size_t>(buffer.memory.get());
}

void append(std::string* text, const void* data, size_t size) {
  text->append(static_cast<const char*>(data), size);
}

// Whose pages cost nothing until they are used.
constexpr size_t kChunk = size_t{64} << 20;

// Of all programs. Keys hold addresses of weights: whoever has a buffer keeps the file that
// these lie in, so that no other bytes can come to the same address meanwhile.
struct Everywhere {
  std::mutex mutex;
  std::unordered_map<std::string, std::weak_ptr<const PackedWeights::Buffer>> buffers;

  static Everywhere& get() {
    static auto& instance = *new Everywhere;  // programs may live until the process ends
    return instance;
  }
};

// What decides how weights are packed, besides the weights and nodes: the builds of XNNPACK and of
// this backend, and the CPU.
const std::string& packed_by() {
  static const std::string& text = *new std::string([] {
    std::string result = "xnnpack backend " EDGEWISE_PACKED_BY "\n";
    result.append(static_cast<const char*>(xnn_experimental_get_build_identifier_data()),
                  xnn_experimental_get_build_identifier_size());
    return result + "\n" + cpu_identity() + "\n";
  }());
  return text;
}

}  // namespace

PackedWeights::Buffer PackedWeights::Buffer::alone(size_t size) {
  const size_t distance = padded_size(size);
  return {distance == 0 ? nullptr : allocate_shared(distance), size};
}

void PackedWeights::expect(size_t bytes) {
  are_side_by_side_ = bytes > kMostCached && disk_ == nullptr;
}

PackedWeights::Buffer PackedWeights::allocate(size_t size) {
  const size_t distance = padded_size(size);
  if (!are_side_by_side_ || distance == 0 || distance >= kHugePage) return Buffer::alone(size);
  if (chunk_ == nullptr || kChunk - chunk_used_ < distance) {
    chunk_ = allocate_shared(kChunk);
    chunk_used_ = 0;
    if (chunk_ == nullptr) return Buffer::alone(size);
  }
  Buffer buffer = {{chunk_, chunk_.get() + chunk_used_}, size, true};
  chunk_used_ += distance;
  return buffer;
}

void PackedWeights::give_back(Buffer buffer) {
  const size_t distance = padded_size(buffer.size);
  if (buffer.is_in_chunk && buffer.memory.get() + distance == chunk_.get() + chunk_used_) {
    chunk_used_ -= distance;
  }
}

PackedWeights::~PackedWeights() {
  Everywhere& all = Everywhere::get();
  const std::lock_guard lock(all.mutex);
  for (auto& [key, buffer] : buffers_) {
    buffer.reset();
    const auto found = all.buffers.find(key);
    if (found != all.buffers.end() && found->second.expired()) all.buffers.erase(found);
  }
}

void PackedWeights::keep_in(DiskCache* disk) { disk_ = disk; }

std::string PackedWeights::name_of(const void* data) const {
  if (data == nullptr) return "none ";
  if (disk_ != nullptr) return disk_->name_of(data);
  return {reinterpret_cast<const char*>(&data), sizeof(data)};
}

std::string PackedWeights::on_disk(const std::string& key) const { return packed_by() + key; }

const PackedWeights::Buffer* PackedWeights::find(const std::string& key, const Origin& origin) {
  const auto own = buffers_.find(key);
  if (own != buffers_.end()) return own->second.get();
  std::shared_ptr<const Buffer> buffer;
  {
    Everywhere& all = Everywhere::get();
    const std::lock_guard lock(all.mutex);
    const auto found = all.buffers.find(key);
    if (found != all.buffers.end()) buffer = found->second.lock();
  }
  if (buffer == nullptr && disk_ != nullptr) {
    DiskCache::Entry entry = disk_->find(origin.data, on_disk(key), origin.most);
    if (entry.data == nullptr || entry.size < origin.least || entry.size > origin.most) {
      return nullptr;
    }
    return &insert(key, {std::const_pointer_cast<std::byte>(std::move(entry.data)), entry.size},
                   {});
  }
  if (buffer == nullptr) return nullptr;
  bytes_ += buffer->size;
  return buffers_.emplace(key, std::move(buffer)).first->second.get();
}

const PackedWeights::Buffer& PackedWeights::insert(std::string key, Buffer buffer,
                                                   const Origin& origin) {
  if (disk_ != nullptr && origin.data != nullptr) {
    DiskCache::Entry entry =
        disk_->insert(origin.data, on_disk(key), {buffer.memory.get(), buffer.size}, origin.most);
    if (entry.data != nullptr && entry.size == buffer.size) {
      give_back(std::exchange(buffer, {}));
      buffer = {std::const_pointer_cast<std::byte>(std::move(entry.data)), entry.size};
    }
  }
  auto shared = std::make_shared<const Buffer>(std::move(buffer));
  bytes_ += shared->size;
  Everywhere& all = Everywhere::get();
  const std::lock_guard lock(all.mutex);
  all.buffers[key] = shared;
  return *buffers_.insert_or_assign(std::move(key), std::move(shared)).first->second;
}

WeightsCache::WeightsCache(PackedWeights* shared) : shared_(shared), provider_{} {
  using Key = xnn_weights_cache_look_up_key;
  provider_.context = this;
  provider_.look_up = [](void* context, const Key* key) {
    auto* self = static_cast<WeightsCache*>(context);
    return self->answer([&]() -> Result<size_t> { return self->look_up(*key); }, kNotFound);
  };
  provider_.reserve_space = [](void* context, size_t size) {
    auto* self = static_cast<WeightsCache*>(context);
    return self->answer<void*>([&]() -> Result<void*> { return self->reserve(size); }, nullptr);
  };
  provider_.look_up_or_insert = [](void* context, const Key* key, void* memory, size_t size) {
    auto* self = static_cast<WeightsCache*>(context);
    return self->answer([&] { return self->look_up_or_insert(*key, memory, size); }, kNotFound);
  };
  // Nothing moves, so it is always as good as final.
  provider_.is_finalized = [](void*) { return true; };
  provider_.offset_to_addr = [](void*, size_t offset) { return reinterpret_cast<void*>(offset); };
  provider_.delete_cache = [](void*) { return xnn_status_success; };
}

template <typename Value, typename Call>
Value WeightsCache::answer(const Call& call, Value otherwise) {
  Result<Value> found = guarded("XNNPACK", call);
  if (found.ok()) return *found;
  has_failed_ = true;
  return otherwise;
}

void WeightsCache::stands_for(const void* data, const void* original) {
  originals_[data] = original;
}

void WeightsCache::lies_in(const NamedData& named_data, std::span<const std::byte> data) {
  named_data_ = &named_data;
  sources_[data.data()] = data;
}

void WeightsCache::release_sources(const xnn_weights_cache_look_up_key& key) const {
  for (const void* data : {key.kernel, key.bias}) {
    const auto found = sources_.find(data);
    if (found != sources_.end()) named_data_->release(found->second);
  }
}

void WeightsCache::describe(std::string what, size_t most) {
  what_ = std::move(what);
  most_ = most;
}

void WeightsCache::choose_part(const void* kernel, const void* part, size_t size) {
  part_size_ = size;
  if (sources_.contains(kernel)) {
    sources_[part] = std::span(static_cast<const std::byte*>(part), size);
  }
}

const void* WeightsCache::original_of(const void* data) const {
  const auto known = originals_.find(data);
  return known == originals_.end() ? data : known->second;
}

PackedWeights::Origin WeightsCache::origin_of(const xnn_weights_cache_look_up_key& key) const {
  return {.data = original_of(key.kernel), .most = most_};
}

std::string WeightsCache::key_of(const xnn_weights_cache_look_up_key& key) const {
  if (what_.empty()) return {};
  std::string result = what_;
  if (part_size_ != 0) append(&result, &part_size_, sizeof(part_size_));
  append(&result, &key.seed, sizeof(key.seed));
  for (const void* data : {key.kernel, key.bias}) {
    const std::string name = shared_->name_of(original_of(data));
    if (name.empty()) return {};
    result += name;
  }
  return result;
}

size_t WeightsCache::look_up(const xnn_weights_cache_look_up_key& key) {
  const std::string text = key_of(key);
  const auto* found = text.empty() ? nullptr : shared_->find(text, origin_of(key));
  if (found == nullptr) return kNotFound;
  shared_->count_reuse();
  return offset_of(*found);
}

void* WeightsCache::reserve(size_t size) {
  shared_->give_back(std::exchange(reserved_, {}));
  reserved_ = shared_->allocate(size);
  return reserved_.memory.get();
}

Result<size_t> WeightsCache::look_up_or_insert(const xnn_weights_cache_look_up_key& key,
                                               void* memory, size_t size) {
  std::string text = key_of(key);
  const auto* found = text.empty() ? nullptr : shared_->find(text, origin_of(key));
  if (found != nullptr) {
    // Some operators pack without looking up, others ask again after they found.
    if (memory != nullptr) shared_->count_reuse();
    if (memory != nullptr && found->size != size) return kNotFound;
    shared_->give_back(std::exchange(reserved_, {}));
    return offset_of(*found);
  }
  if (memory == nullptr || memory != reserved_.memory.get()) return kNotFound;
  release_sources(key);
  PackedWeights::Buffer buffer = std::exchange(reserved_, {});
  if (!text.empty()) {
    return offset_of(shared_->insert(std::move(text), std::move(buffer), origin_of(key)));
  }
  if (buffer.is_in_chunk) {
    // It is packed again when sizes change: beside what stays there would be ever more of it.
    PackedWeights::Buffer alone = PackedWeights::Buffer::alone(size);
    if (alone.memory == nullptr) {
      return error(Code::kOutOfMemory, "[XNNPACK] there is no memory for packed weights");
    }
    std::memcpy(alone.memory.get(), buffer.memory.get(), size);
    shared_->give_back(std::exchange(buffer, std::move(alone)));
  }
  own_.push_back(std::move(buffer));
  return offset_of(own_.back());
}

}  // namespace edgewise::xnnpack
