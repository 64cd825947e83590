// Packed weights, shared by the delegates of a program, and by programs that map the same file.
//
// XNNPACK looks weights up by the addresses of filter and bias and a seed. That does not tell
// apart two nodes that use the same filter with different scales or shapes, so each delegate
// says beforehand what its nodes pack, and that is part of the key. Only weights from the
// program's named data are shared: their addresses mean the same for as long as the program
// lives. All others belong to the delegate. Where XNNPACK reads a converted copy, the key has the
// address of the original. With a DiskCache, the names of what lies at these addresses stand in
// their place, and what is packed is kept on disk and mapped.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "edgewise/backend.h"
#include "edgewise/disk_cache.h"
#include "edgewise/status.h"
#include "xnnpack.h"

namespace edgewise::xnnpack {

// What a program's delegates share. Used under the program state's mutex. What is packed from
// the same bytes in memory is found by other programs as long as one has it.
class PackedWeights {
 public:
  struct Buffer {
    std::shared_ptr<std::byte> memory;  // null: there was none; not to be written once inserted
    size_t size = 0;
    bool is_in_chunk = false;

    // In memory of its own, and with what may be read behind it.
    static Buffer alone(size_t size);
  };

  // Where something is packed from, and how large that can become.
  struct Origin {
    const void* data = nullptr;
    size_t least = 0;
    size_t most = 0;
  };

  PackedWeights() = default;
  ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  // From now on what is packed is kept there, too (null: nowhere). Outlives this object.
  void keep_in(DiskCache* disk);
  // Whether constants that are no named data have names that are good for keys.
  bool is_kept() const { return disk_ != nullptr; }
  // What stands for the bytes at `data` in a key. Empty: nothing does.
  std::string name_of(const void* data) const;

  // Says how much there may be to pack, before the first of it. Small buffers of much are put side
  // by side, so that huge pages hold them: reading 180 MB takes 3 to 7 % less time than from small
  // pages. Of little, the part of a huge page that stays empty would cost more than that.
  void expect(size_t bytes);
  Buffer allocate(size_t size);
  // What was allocated last makes room for the next.
  void give_back(Buffer buffer);

  // Null if there is none.
  const Buffer* find(const std::string& key, const Origin& origin);
  // Returns what is to be used from now on: `buffer`, or what it became on disk.
  const Buffer& insert(std::string key, Buffer buffer, const Origin& origin);

  size_t bytes() const { return bytes_; }
  size_t count() const { return buffers_.size(); }
  size_t reuses() const { return reuses_; }
  void count_reuse() { ++reuses_; }

 private:
  std::string on_disk(const std::string& key) const;

  std::unordered_map<std::string, std::shared_ptr<const Buffer>> buffers_;
  DiskCache* disk_ = nullptr;
  size_t bytes_ = 0;
  size_t reuses_ = 0;
  bool are_side_by_side_ = false;
  std::shared_ptr<std::byte> chunk_;  // kept by the buffers in it, too
  size_t chunk_used_ = 0;
};

// One operator's view, which must outlive it.
class WeightsCache {
 public:
  explicit WeightsCache(PackedWeights* shared);
  WeightsCache(const WeightsCache&) = delete;
  WeightsCache& operator=(const WeightsCache&) = delete;

  // Says what is packed, to `most` bytes at most: all but the addresses of filter and bias. Empty:
  // not to be shared.
  void describe(std::string what, size_t most);
  // Says that only `size` bytes of the kernel, those at `part`, are packed from now on.
  void choose_part(const void* kernel, const void* part, size_t size);
  // Says that what XNNPACK reads at `data` is a copy of what lies at `original`, or is that.
  void stands_for(const void* data, const void* original);
  // Says how much there is at `data`, and who can let go of it: as soon as it is packed its pages
  // are not needed, so that the model is not in memory twice.
  void lies_in(const NamedData& named_data, std::span<const std::byte> data);
  const PackedWeights& shared() const { return *shared_; }
  xnn_weights_cache_t get() { return &provider_; }
  // Whether an answer to XNNPACK failed since this was last asked: the operator that it made is of
  // no use.
  bool take_failure() { return std::exchange(has_failed_, false); }

 private:
  // What `call` returns, a Result; `otherwise` if it fails. XNNPACK's own frames may have no tables
  // to unwind (C on 32-bit Arm), so that no exception may cross them.
  template <typename Value, typename Call>
  Value answer(const Call& call, Value otherwise);
  size_t look_up(const xnn_weights_cache_look_up_key& key);
  void* reserve(size_t size);
  Result<size_t> look_up_or_insert(const xnn_weights_cache_look_up_key& key, void* memory,
                                   size_t size);
  void release_sources(const xnn_weights_cache_look_up_key& key) const;
  // Empty if not to be shared.
  std::string key_of(const xnn_weights_cache_look_up_key& key) const;
  const void* original_of(const void* data) const;
  PackedWeights::Origin origin_of(const xnn_weights_cache_look_up_key& key) const;

  PackedWeights* shared_;
  std::string what_;
  size_t most_ = 0;
  size_t part_size_ = 0;  // 0: all of the kernel
  std::unordered_map<const void*, const void*> originals_;
  std::unordered_map<const void*, std::span<const std::byte>> sources_;
  const NamedData* named_data_ = nullptr;
  std::vector<PackedWeights::Buffer> own_;
  PackedWeights::Buffer reserved_;
  bool has_failed_ = false;
  xnn_weights_cache_provider provider_;
};

}  // namespace edgewise::xnnpack
