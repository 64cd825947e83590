#include "backends/xnnpack/weights_cache.h"

#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "backends/xnnpack/allocator.h"
#include "backends/xnnpack/non_temporal_loads.h"
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

}  // namespace

PackedWeights::Buffer PackedWeights::Buffer::alone(size_t size) {
  const size_t distance = padded_size(size);
  return {distance == 0 ? nullptr : allocate_shared(distance), size};
}

void PackedWeights::expect(size_t bytes) { are_side_by_side_ = bytes > kMostCached; }

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

const PackedWeights::Buffer* PackedWeights::find(const std::string& key) {
  const auto own = buffers_.find(key);
  if (own != buffers_.end()) return own->second.get();
  Everywhere& all = Everywhere::get();
  const std::lock_guard lock(all.mutex);
  const auto found = all.buffers.find(key);
  if (found == all.buffers.end()) return nullptr;
  std::shared_ptr<const Buffer> buffer = found->second.lock();
  if (buffer == nullptr) return nullptr;
  bytes_ += buffer->size;
  return buffers_.emplace(key, std::move(buffer)).first->second.get();
}

void PackedWeights::insert(std::string key, Buffer buffer) {
  auto shared = std::make_shared<const Buffer>(std::move(buffer));
  bytes_ += shared->size;
  Everywhere& all = Everywhere::get();
  const std::lock_guard lock(all.mutex);
  all.buffers[key] = shared;
  buffers_.emplace(std::move(key), std::move(shared));
}

WeightsCache::WeightsCache(PackedWeights* shared) : shared_(shared), provider_{} {
  using Key = xnn_weights_cache_look_up_key;
  provider_.context = this;
  provider_.look_up = [](void* self, const Key* key) {
    return static_cast<WeightsCache*>(self)->look_up(*key);
  };
  provider_.reserve_space = [](void* self, size_t size) {
    return static_cast<WeightsCache*>(self)->reserve(size);
  };
  provider_.look_up_or_insert = [](void* self, const Key* key, void* memory, size_t size) {
    return static_cast<WeightsCache*>(self)->look_up_or_insert(*key, memory, size);
  };
  // Nothing moves, so it is always as good as final.
  provider_.is_finalized = [](void*) { return true; };
  provider_.offset_to_addr = [](void*, size_t offset) { return reinterpret_cast<void*>(offset); };
  provider_.delete_cache = [](void*) { return xnn_status_success; };
}

void WeightsCache::restart() {
  descriptions_.clear();
  originals_.clear();
  sources_.clear();
  own_.clear();
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

void WeightsCache::describe(const void* kernel, std::string what) {
  const auto [entry, is_new] = descriptions_.emplace(kernel, what);
  if (!is_new && entry->second != what) entry->second.clear();
}

std::string WeightsCache::key_of(const xnn_weights_cache_look_up_key& key) const {
  const auto found = descriptions_.find(key.kernel);
  if (found == descriptions_.end() || found->second.empty()) return {};
  std::string result = found->second;
  append(&result, &key.seed, sizeof(key.seed));
  for (const void* data : {key.kernel, key.bias}) {
    const auto known = originals_.find(data);
    const void* original = known == originals_.end() ? data : known->second;
    append(&result, &original, sizeof(original));
  }
  return result;
}

size_t WeightsCache::look_up(const xnn_weights_cache_look_up_key& key) {
  const std::string text = key_of(key);
  const auto* found = text.empty() ? nullptr : shared_->find(text);
  if (found == nullptr) return kNotFound;
  shared_->count_reuse();
  return offset_of(*found);
}

void* WeightsCache::reserve(size_t size) {
  shared_->give_back(std::exchange(reserved_, {}));
  reserved_ = shared_->allocate(size);
  return reserved_.memory.get();
}

size_t WeightsCache::look_up_or_insert(const xnn_weights_cache_look_up_key& key, void* memory,
                                       size_t size) {
  std::string text = key_of(key);
  const auto* found = text.empty() ? nullptr : shared_->find(text);
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
    const size_t offset = offset_of(buffer);
    shared_->insert(std::move(text), std::move(buffer));
    return offset;
  }
  if (buffer.is_in_chunk) {
    // It is packed again when sizes change: beside what stays there would be ever more of it.
    PackedWeights::Buffer alone = PackedWeights::Buffer::alone(size);
    if (alone.memory == nullptr) return kNotFound;
    std::memcpy(alone.memory.get(), buffer.memory.get(), size);
    shared_->give_back(std::exchange(buffer, std::move(alone)));
  }
  own_.push_back(std::move(buffer));
  return offset_of(own_.back());
}

}  // namespace edgewise::xnnpack
