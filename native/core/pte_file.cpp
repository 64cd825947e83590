#include "pte_file.h"

#include <algorithm>
#include <utility>

#include "checked.h"
#include "format.h"
#include "pte_header.h"

namespace edgewise {

namespace {

// The schema nests 8 deep; tables may be shared, so their number says what verification
// costs and not the file's size.
constexpr flatbuffers::uoffset_t kMaxDepth = 16;
constexpr flatbuffers::uoffset_t kMaxTables = 1 << 24;

unsigned long long wide(uint64_t number) { return number; }

}  // namespace

Result<std::unique_ptr<PteFile>> PteFile::open(FileBytes bytes,
                                               std::vector<std::unique_ptr<DataFile>> data,
                                               Verification verification) {
  auto file = std::make_unique<PteFile>();
  file->data_ = std::move(data);
  file->bytes_ = std::move(bytes);
  Result<PteHeader> header = read_pte_header(file->bytes_.bytes());
  if (!header) return header.status();

  const auto* buffer = reinterpret_cast<const uint8_t*>(header->flatbuffer.data());
  if (verification != Verification::kMinimal) {
    flatbuffers::Verifier verifier(buffer, header->flatbuffer.size(), kMaxDepth, kMaxTables);
    if (!verifier.VerifyBuffer<fb::Program>(nullptr)) {
      return error(Code::kInvalidProgram,
                   "[load] the program's flatbuffer is damaged; try writing the file again");
    }
  } else {
    flatbuffers::uoffset_t root = flatbuffers::ReadScalar<flatbuffers::uoffset_t>(buffer);
    if (!in_range(root, sizeof(flatbuffers::soffset_t), header->flatbuffer.size())) {
      return error(Code::kInvalidProgram, "[load] the root table is outside of the program");
    }
  }
  file->program_ = fb::GetProgram(buffer);
  if (file->program_->version() != 0) {
    return error(Code::kUnsupported,
                 "[load] programs of version 0 are read; got version %u; try a "
                 "newer edgewise",
                 file->program_->version());
  }
  EDGEWISE_RETURN_IF_ERROR(file->read_segments(header->segments));
  EDGEWISE_RETURN_IF_ERROR(file->read_named_data());
  EDGEWISE_RETURN_IF_ERROR(file->check_data_files());
  return file;
}

Status PteFile::read_segments(std::span<const std::byte> data) {
  const auto* table = program_->segments();
  if (table == nullptr) return Status::ok_status();
  segments_.reserve(table->size());
  for (uint32_t i = 0; i < table->size(); ++i) {
    const fb::DataSegment* entry = table->Get(i);
    if (!in_range(entry->offset(), entry->size(), data.size())) {
      return error(Code::kInvalidProgram,
                   "[load] segment %u has %llu bytes at offset %llu, and the file has %zu bytes of "
                   "segments; the file may be truncated",
                   i, wide(entry->size()), wide(entry->offset()), data.size());
    }
    segments_.push_back(data.subspan(entry->offset(), entry->size()));
  }
  return Status::ok_status();
}

Status PteFile::read_named_data() {
  const auto* table = program_->named_data();
  if (table == nullptr) return Status::ok_status();
  named_.reserve(table->size());
  for (uint32_t i = 0; i < table->size(); ++i) {
    const fb::NamedData* entry = table->Get(i);
    if (entry->key() == nullptr) {
      return error(Code::kInvalidProgram, "[load] named data %u has no key", i);
    }
    if (entry->segment_index() >= segments_.size()) {
      return error(Code::kInvalidProgram,
                   "[load] named data %u is in segment %u, and the file has %zu", i,
                   entry->segment_index(), segments_.size());
    }
    if (!named_.try_emplace(entry->key()->string_view(), entry->segment_index()).second) {
      return error(Code::kInvalidProgram, "[load] named data %u has the key of another", i);
    }
  }
  return Status::ok_status();
}

Result<std::span<const std::byte>> PteFile::segment(uint64_t index) const {
  if (index < segments_.size()) return segments_[index];
  return error(Code::kInvalidProgram, "segment %llu does not exist; the file has %zu", wide(index),
               segments_.size());
}

Result<std::span<const std::byte>> PteFile::subsegment(const fb::SubsegmentOffsets& list,
                                                       uint32_t index, size_t nbytes) const {
  const auto* offsets = list.offsets();
  if (offsets == nullptr || index >= offsets->size()) {
    return error(Code::kInvalidProgram, "data entry %u does not exist; the list has %u", index,
                 offsets == nullptr ? 0 : offsets->size());
  }
  Result<std::span<const std::byte>> whole = segment(list.segment_index());
  if (!whole) return whole;
  const uint64_t offset = item(*offsets, index);
  if (!in_range(offset, nbytes, whole->size())) {
    return error(Code::kInvalidProgram,
                 "data entry %u has %zu bytes at offset %llu, and its segment has %zu bytes", index,
                 nbytes, wide(offset), whole->size());
  }
  return whole->subspan(offset, nbytes);
}

Result<std::span<const std::byte>> PteFile::constant(uint32_t index, size_t nbytes) const {
  const fb::SubsegmentOffsets* list = program_->constant_segment();
  if (list != nullptr && list->offsets() != nullptr && list->offsets()->size() != 0) {
    return subsegment(*list, index, nbytes);
  }
  const auto* buffers = program_->constant_buffer();
  if (buffers == nullptr || index >= buffers->size()) {
    return error(Code::kInvalidProgram, "constant %u does not exist; the file has %u", index,
                 buffers == nullptr ? 0 : buffers->size());
  }
  const auto* storage = buffers->Get(index)->storage();
  const size_t size = storage == nullptr ? 0 : storage->size();
  if (nbytes > size) {
    return error(Code::kInvalidProgram, "constant %u has %zu bytes, and %zu are needed", index,
                 size, nbytes);
  }
  if (storage == nullptr) return bytes_.bytes().first(0);
  return std::span(reinterpret_cast<const std::byte*>(storage->Data()), nbytes);
}

Result<std::span<const std::byte>> PteFile::initial_value(uint64_t list, uint32_t index,
                                                          size_t nbytes) const {
  const auto* lists = program_->mutable_data_segments();
  if (lists == nullptr || list >= lists->size()) {
    return error(Code::kInvalidProgram, "mutable data list %llu does not exist; the file has %u",
                 wide(list), lists == nullptr ? 0 : lists->size());
  }
  return subsegment(*lists->Get(static_cast<uint32_t>(list)), index, nbytes);
}

Result<std::span<const std::byte>> PteFile::delegate_payload(
    const fb::BackendDelegateDataReference& reference) const {
  switch (reference.location()) {
    case fb::DataLocation::SEGMENT:
      return segment(reference.index());
    case fb::DataLocation::INLINE: {
      const auto* all = program_->backend_delegate_data();
      if (all == nullptr || reference.index() >= all->size()) {
        return error(Code::kInvalidProgram, "inline payload %u does not exist; the file has %u",
                     reference.index(), all == nullptr ? 0 : all->size());
      }
      const auto* data = all->Get(reference.index())->data();
      if (data == nullptr) return bytes_.bytes().first(0);
      return std::span(reinterpret_cast<const std::byte*>(data->Data()), data->size());
    }
  }
  return error(Code::kInvalidProgram, "payload location %d is not known",
               static_cast<int>(reference.location()));
}

Result<std::span<const std::byte>> PteFile::find(std::string_view key) const {
  const auto found = named_.find(key);
  if (found != named_.end()) return segments_[found->second];
  for (const auto& data : data_) {
    if (const DataFile::Entry* entry = data->find(key)) return entry->bytes;
  }
  return error(Code::kNotFound, "[named data] %s no data named '%s'; try loading the program %s",
               data_.empty() ? "the file has" : "the file and its data files have",
               std::string(key).c_str(), "with the data file (.ptd) that was written with it");
}

size_t PteFile::bytes() const {
  size_t sum = 0;
  for (const auto& [key, segment] : named_) sum += segments_[segment].size();
  for (const auto& data : data_) {
    for (const auto& [key, entry] : data->entries()) sum += entry.bytes.size();
  }
  return sum;
}

void PteFile::release(std::span<const std::byte> bytes) const {
  bytes_.release(bytes);
  for (const auto& data : data_) data->release(bytes);
}

std::vector<const FileBytes*> PteFile::files() const {
  std::vector<const FileBytes*> result = {&bytes_};
  for (const auto& data : data_) result.push_back(&data->file());
  return result;
}

void PteFile::open_cache(const platform::CacheOptions& options) {
  std::vector<platform::CacheSource> sources;
  for (const FileBytes* file : files()) {
    sources.push_back({file->bytes(), file->identity(),
                       [file](std::span<const std::byte> part) { file->release(part); }});
  }
  cache_ = platform::open_cache(options, std::move(sources));
}

Status PteFile::check_whole() const {
  EDGEWISE_RETURN_IF_ERROR(bytes_.check_whole());
  for (const auto& data : data_) EDGEWISE_RETURN_IF_ERROR(data->check_whole());
  return cache_ == nullptr ? Status() : cache_->check_whole();
}

Status PteFile::check_data_files() const {
  for (size_t i = 0; i < data_.size(); ++i) {
    for (const auto& [key, entry] : data_[i]->entries()) {
      const char* other = named_.contains(key) ? "the program" : nullptr;
      for (size_t j = 0; j < i && other == nullptr; ++j) {
        if (data_[j]->find(key) != nullptr) other = data_[j]->name().c_str();
      }
      if (other == nullptr) continue;
      return error(Code::kInvalidArgument,
                   "[load] a name must be in one file; got '%s' in '%s' and %s",
                   std::string(key).c_str(), data_[i]->name().c_str(), other);
    }
  }
  return {};
}

namespace {

template <typename T, typename U>
bool equal(const flatbuffers::Vector<T>* a, const flatbuffers::Vector<U>* b) {
  if (a == nullptr || b == nullptr)
    return (a == nullptr || a->size() == 0) && (b == nullptr || b->size() == 0);
  if (a->size() != b->size()) return false;
  for (uint32_t i = 0; i < a->size(); ++i) {
    if (item(*a, i) != item(*b, i)) return false;
  }
  return true;
}

std::string describe(fb::ScalarType type, const flatbuffers::Vector<int32_t>* sizes) {
  std::vector<int64_t> wide_sizes;
  if (sizes != nullptr) copy_items(*sizes, &wide_sizes);
  return std::string(to_string(static_cast<ScalarType>(type))) + format_sizes(wide_sizes);
}

}  // namespace

Result<std::span<const std::byte>> PteFile::external(const fb::Tensor& tensor,
                                                     size_t nbytes) const {
  const auto* name = tensor.extra_tensor_info()->fully_qualified_name();
  if (name == nullptr)
    return error(Code::kInvalidProgram, "its data is in another file and has no name");
  for (const auto& data : data_) {
    const DataFile::Entry* entry = data->find(name->string_view());
    if (entry == nullptr) continue;
    const fb::TensorLayout* layout = entry->layout;
    if (layout == nullptr || layout->scalar_type() != tensor.scalar_type() ||
        !equal(layout->sizes(), tensor.sizes()) ||
        !equal(layout->dim_order(), tensor.dim_order()) || entry->bytes.size() < nbytes) {
      const std::string got =
          layout == nullptr ? "no tensor" : describe(layout->scalar_type(), layout->sizes());
      return error(Code::kInvalidProgram,
                   "'%s' must be %s in data file '%s'; got %s of %zu bytes; try the file that was "
                   "written with this program",
                   name->c_str(), describe(tensor.scalar_type(), tensor.sizes()).c_str(),
                   data->name().c_str(), got.c_str(), entry->bytes.size());
    }
    return entry->bytes.first(nbytes);
  }
  std::string names;
  for (const auto& data : data_) names += (names.empty() ? "'" : ", '") + data->name() + "'";
  return error(Code::kNotFound,
               "the data of '%s' is in another file (.ptd); got %s; try loading the program with "
               "the data file that was written with it",
               name->c_str(), names.empty() ? "none" : names.c_str());
}

}  // namespace edgewise
