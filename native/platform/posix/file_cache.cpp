// The folder:
//   CACHEDIR.TAG              tells backup programs that all of it can be made again
//   files/ID                  the SHA-256 of a program's or data file of identity ID
//   packed/SHA256/KEY         an entry: made of the file with these contents; KEY is the SHA-256 of
//                             what it was asked for by
//   packed/SHA256/KEY.known   the identity of an entry whose contents were compared with its hash
//
// A file is hashed once, and known by its identity from then on; once more after the system was
// started anew, as what was written last may not have reached the disk. All are written under
// another name and renamed, and say the same whoever writes them: no process waits for another.
#include "platform/file_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <optional>
#include <utility>

#include "core/sha256.h"
#include "edgewise/tensor.h"
#include "platform/posix/boot.h"
#include "platform/posix/file_descriptor.h"

namespace edgewise::platform {

namespace {

constexpr size_t kHeaderBytes = 4096;  // what follows is aligned to a page
constexpr uint32_t kVersion = 1;
constexpr time_t kAbandoned = 3600;  // seconds until a temporary file belongs to no one

// At the start of an entry, in the machine's byte order.
struct EntryHeader {
  char magic[8] = {'e', 'd', 'g', 'e', 'p', 'a', 'c', 'k'};
  uint32_t version = kVersion;
  uint32_t reserved = 0;
  uint64_t size = 0;  // of the contents
  Digest key = {};    // as in its name
  Digest contents = {};
};
static_assert(sizeof(EntryHeader) == 88);

constexpr Boot kAnyBoot = {};

// Where it is not known files are hashed by each process.
const Boot& this_boot() {
  static const Boot boot = read_boot();
  return boot;
}

struct HashRecord {
  char magic[8] = {'e', 'd', 'g', 'e', 'h', 'a', 's', 'h'};
  FileIdentity identity = {};
  Boot boot = kAnyBoot;  // the start of the system until whose end the record counts
  Digest contents = {};
  Digest check = {};  // of all before it
};
static_assert(sizeof(HashRecord) == 168);

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <typename T>
std::span<const std::byte> bytes_of_object(const T& object) {
  return std::as_bytes(std::span(&object, 1));
}

Digest check_of(const HashRecord& record) {
  return sha256(bytes_of_object(record).first(offsetof(HashRecord, check)));
}

// Whether a write from now on would give the file another identity. Clocks of file systems tick
// every 10 ms at most, or once in two seconds where they know no parts of one.
bool is_settled(const FileIdentity& identity) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  const auto later = [&](size_t seconds, int64_t nanoseconds) {
    return (int64_t{now.tv_sec} - identity[seconds]) * 1'000'000'000 + int64_t{now.tv_nsec} -
               identity[seconds + 1] >
           nanoseconds;
  };
  const int64_t tick = identity[4] == 0 && identity[6] == 0 ? 2'000'000'000 : 20'000'000;
  return later(3, tick) && later(5, tick);
}

bool make_folders(const std::string& path) {
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    mkdir(path.substr(0, end).c_str(), 0777);
  }
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
}

// Whether nobody but this user and the administrator can write to it.
bool is_private(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         (info.st_uid == geteuid() || info.st_uid == 0) && (info.st_mode & 022) == 0;
}

// For the user whose rights files are opened with.
bool can_write(const std::string& path) {
#ifdef __ANDROID__  // whose C library refuses the flag, and whose processes have one user
  return access(path.c_str(), W_OK) == 0;
#else
  return faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
#endif
}

bool write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), std::min(bytes.size(), size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

// Writes the parts one after the other, under another name first. False, with errno, if it could
// not.
bool replace_file(const std::string& folder, const std::string& name,
                  std::initializer_list<std::span<const std::byte>> parts) {
  static std::atomic<unsigned> count = 0;
  const std::string temporary = folder + "/." + name.substr(0, 16) + "." +
                                std::to_string(getpid()) + "." + std::to_string(count++);
  const auto fail = [&] {
    const int reason = errno;
    unlink(temporary.c_str());
    errno = reason;
    return false;
  };
  {
    const FileDescriptor file(
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.get() < 0) return false;
    for (const auto& part : parts) {
      if (!write_all(file.get(), part)) return fail();
    }
  }
  return rename(temporary.c_str(), (folder + "/" + name).c_str()) == 0 || fail();
}

struct Known {
  Digest contents;
  bool is_earlier;  // of an earlier start of the system: to be hashed again, then certain
};

std::optional<Known> read_record(const std::string& path, const FileIdentity& identity) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  HashRecord record, expected;
  if (file.get() < 0 || read(file.get(), &record, sizeof(record)) != sizeof(record)) return {};
  const bool is_sound = std::memcmp(record.magic, expected.magic, sizeof(record.magic)) == 0 &&
                        record.identity == identity && record.check == check_of(record);
  if (!is_sound) return {};
  const bool is_now = record.boot == this_boot() && record.boot[0] != '?';
  return Known{record.contents, !is_now && record.boot != kAnyBoot};
}

// `is_certain`: what was hashed came from the disk.
bool write_record(const std::string& folder, const std::string& name, const FileIdentity& identity,
                  const Digest& contents, bool is_certain = false) {
  HashRecord record;
  record.identity = identity;
  record.boot = is_certain ? kAnyBoot : this_boot();
  record.contents = contents;
  record.check = check_of(record);
  return replace_file(folder, name, {bytes_of_object(record)});
}

bool is_hex(std::string_view text, size_t size) {
  return text.size() == size && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// Names in a folder; those that begin with a dot, too.
std::vector<std::string> list(const std::string& folder) {
  std::vector<std::string> names;
  DIR* opened = opendir(folder.c_str());
  if (opened == nullptr) return names;
  while (const dirent* entry = readdir(opened)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  closedir(opened);
  return names;
}

struct Folder {
  std::string path;
  timespec used = {};
  size_t bytes = 0;
};

// Whether a name is one that this cache gives to files of a folder of entries.
bool is_own_name(std::string_view name) {
  const std::string_view known = ".known";
  if (name.starts_with('.')) return true;
  if (name.ends_with(known)) name.remove_suffix(known.size());
  return is_hex(name, 64);
}

class Cache final : public FileCache {
 public:
  Cache(const CacheOptions& options, std::vector<CacheSource> sources)
      : options_(options),
        files_(options.folder + "/files"),
        packed_(options.folder + "/packed"),
        sources_(std::move(sources)),
        digests_(sources_.size()) {}
  ~Cache() override {
    const std::lock_guard lock(mutex_);
    remember_pending();
  }

  // False, with a warning, if it cannot be used.
  bool prepare();

  std::string name_of(const void* data) override;
  Entry find(const void* source, std::string_view key, size_t most) override;
  Entry insert(const void* source, std::string_view key, std::span<const std::byte> bytes,
               size_t most) override;
  void finish() override;
  Status check_whole() const override;

 private:
  struct Location {
    std::string folder, name;
    Digest key = {};
  };
  struct Pending {
    std::string folder, name;
    FileIdentity identity;
    Digest contents;
  };

  void warn(const std::string& message) const { options_.warn("[cache] " + message); }
  // Of the source that holds `data`; sources_.size() if none does.
  size_t source_of(const void* data) const;
  const Digest& digest_of(size_t source);
  std::optional<Location> location_of(const void* source, std::string_view key);
  Entry map(const Location& location, size_t most, bool is_own);
  bool is_sound(const MappedFile& file, const Location& location, bool is_own);
  void remember_pending();
  void keep_within_bound();
  void remove_folder(const std::string& path) const;

  const CacheOptions options_;
  const std::string files_, packed_;
  const std::vector<CacheSource> sources_;
  mutable std::mutex mutex_;                    // of all below
  std::vector<std::optional<Digest>> digests_;  // of sources_
  std::vector<std::string> touched_;            // folders that were used
  std::vector<Pending> pending_;                // entries that it wrote and has no record of
  std::vector<std::shared_ptr<const MappedFile>> mapped_;
  bool is_writable_ = true;
  bool has_written_ = false;
  size_t own_bytes_ = 0;  // that it wrote, at most options_.most_bytes
};

bool Cache::prepare() {
  const std::string& folder = options_.folder;
  const char* const none = "; packed weights are not kept; try a folder that does not exist yet";
  if (!make_folders(folder)) {
    warn("'" + folder + "' cannot be made: " + std::strerror(errno) + none);
    return false;
  }
  if (!is_private(folder)) {
    warn("'" + folder + "' must be a folder of this user's or root's that others cannot write to" +
         none);
    return false;
  }
  const bool is_new = access((folder + "/CACHEDIR.TAG").c_str(), F_OK) != 0;
  is_writable_ = make_folders(files_) && make_folders(packed_) && can_write(packed_);
  if (is_writable_ && is_new) {
    replace_file(folder, "CACHEDIR.TAG",
                 {bytes_of("Signature: 8a477f597d28d172789f06886806bc55\n"
                           "# Packed weights of edgewise: may be removed at any time.\n")});
  }
  for (const std::string& path : {files_, packed_}) {
    if (access(path.c_str(), F_OK) == 0 && !is_private(path)) {
      warn("'" + path + "' must be this user's or root's, and others must not write to it" + none);
      return false;
    }
  }
  return true;
}

size_t Cache::source_of(const void* data) const {
  const auto* byte = static_cast<const std::byte*>(data);
  const auto found = std::ranges::find_if(sources_, [&](const CacheSource& source) {
    return byte >= source.bytes.data() && byte < source.bytes.data() + source.bytes.size();
  });
  return static_cast<size_t>(found - sources_.begin());
}

const Digest& Cache::digest_of(size_t index) {
  std::optional<Digest>& digest = digests_[index];
  if (digest) return *digest;
  const CacheSource& source = sources_[index];
  if (source.identity == nullptr || options_.verifies_all) {
    digest = sha256(source.bytes, source.release);
    return *digest;
  }
  const std::string name = to_hex(sha256(bytes_of_object(*source.identity))).substr(0, 32);
  const std::optional<Known> known = read_record(files_ + "/" + name, *source.identity);
  if (known && !known->is_earlier) {
    digest = known->contents;
    return *digest;
  }
  const bool can_remember = is_writable_ && is_settled(*source.identity);
  digest = sha256(source.bytes, source.release);
  // What differs from what was known did not reach the disk.
  const bool is_certain = known && known->contents == *digest;
  if (can_remember) write_record(files_, name, *source.identity, *digest, is_certain);
  return *digest;
}

std::string Cache::name_of(const void* data) {
  const size_t index = source_of(data);
  if (index == sources_.size()) return {};
  const std::lock_guard lock(mutex_);
  const auto offset = static_cast<const std::byte*>(data) - sources_[index].bytes.data();
  return to_hex(digest_of(index)) + ":" + std::to_string(offset) + " ";
}

std::optional<Cache::Location> Cache::location_of(const void* source, std::string_view key) {
  const size_t index = source_of(source);
  if (index == sources_.size()) return {};
  Location location;
  location.folder = packed_ + "/" + to_hex(digest_of(index));
  location.key = sha256(bytes_of(key));
  location.name = to_hex(location.key);
  return location;
}

// `is_own`: this process has just written it.
bool Cache::is_sound(const MappedFile& file, const Location& location, bool is_own) {
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() < kHeaderBytes) return false;
  EntryHeader header, expected;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, expected.magic, sizeof(header.magic)) != 0 ||
      header.version != kVersion || header.size != bytes.size() - kHeaderBytes ||
      header.key != location.key) {
    return false;
  }
  if (is_own) {
    pending_.push_back({location.folder, location.name, file.identity(), header.contents});
    return true;
  }
  const std::string record = location.name + ".known";
  const std::optional<Known> known = read_record(location.folder + "/" + record, file.identity());
  if (known && !known->is_earlier && !options_.verifies_all) {
    return known->contents == header.contents;
  }
  const bool can_remember = is_writable_ && is_settled(file.identity());
  if (sha256(bytes.subspan(kHeaderBytes)) != header.contents) return false;
  if (can_remember) {
    write_record(location.folder, record, file.identity(), header.contents,
                 known && known->is_earlier);
  }
  return true;
}

DiskCache::Entry Cache::map(const Location& location, size_t most, bool is_own) {
  const std::string path = location.folder + "/" + location.name;
  auto file = map_file(path, most + kReadPadding);
  if (!file) {
    if (file.status().code() != Code::kNotFound && access(path.c_str(), F_OK) == 0) {
      warn(file.status().message() + "; its weights are packed again");
      if (is_writable_) unlink(path.c_str());
    }
    return {};
  }
  if (!is_sound(**file, location, is_own) || !(*file)->is_whole()) {
    warn("'" + path + "' is damaged, or no file of this cache; its weights are packed again");
    if (is_writable_) unlink(path.c_str());
    return {};
  }
  mapped_.push_back(*file);
  const std::span<const std::byte> contents = (*file)->bytes().subspan(kHeaderBytes);
  return {{std::move(*file), contents.data()}, contents.size()};
}

DiskCache::Entry Cache::find(const void* source, std::string_view key, size_t most) {
  const std::lock_guard lock(mutex_);
  const std::optional<Location> location = location_of(source, key);
  if (!location) return {};
  Entry entry = map(*location, most, /*is_own=*/false);
  if (entry.data != nullptr && std::ranges::find(touched_, location->folder) == touched_.end()) {
    touched_.push_back(location->folder);
    if (is_writable_) utimensat(AT_FDCWD, location->folder.c_str(), nullptr, 0);
  }
  return entry;
}

DiskCache::Entry Cache::insert(const void* source, std::string_view key,
                               std::span<const std::byte> bytes, size_t most) {
  const std::lock_guard lock(mutex_);
  if (!is_writable_ || bytes.size() > most) return {};
  const std::optional<Location> location = location_of(source, key);
  if (!location) return {};
  if (options_.most_bytes != 0 && bytes.size() > options_.most_bytes - own_bytes_) {
    warn("cache_bytes is " + std::to_string(options_.most_bytes) +
         "; the packed weights of this program are more, and are not all kept");
    is_writable_ = false;
    return {};
  }
  EntryHeader header;
  header.size = bytes.size();
  header.key = location->key;
  header.contents = sha256(bytes);
  std::byte head[kHeaderBytes] = {};
  std::memcpy(head, &header, sizeof(header));
  if (!make_folders(location->folder) ||
      !replace_file(location->folder, location->name, {head, bytes})) {
    warn("'" + location->folder + "' cannot be written to: " + std::strerror(errno) +
         "; packed weights are not kept");
    is_writable_ = false;
    return {};
  }
  has_written_ = true;
  own_bytes_ += bytes.size();
  if (std::ranges::find(touched_, location->folder) == touched_.end()) {
    touched_.push_back(location->folder);
  }
  return map(*location, most, /*is_own=*/true);
}

// Of entries that this process wrote.
void Cache::remember_pending() {
  std::erase_if(pending_, [](const Pending& entry) {
    if (!is_settled(entry.identity)) return false;
    write_record(entry.folder, entry.name + ".known", entry.identity, entry.contents);
    return true;
  });
}

void Cache::remove_folder(const std::string& path) const {
  for (const std::string& name : list(path)) {
    if (is_own_name(name)) unlink((path + "/" + name).c_str());
  }
  rmdir(path.c_str());
}

void Cache::keep_within_bound() {
  std::vector<Folder> folders;
  size_t sum = 0;
  for (const std::string& name : list(packed_)) {
    if (!is_hex(name, 64)) continue;
    Folder folder = {.path = packed_ + "/" + name};
    struct stat info = {};
    if (stat(folder.path.c_str(), &info) != 0) continue;
    folder.used = written_at(info);
    for (const std::string& file : list(folder.path)) {
      const std::string path = folder.path + "/" + file;
      if (lstat(path.c_str(), &info) != 0) continue;
      folder.bytes += static_cast<size_t>(info.st_size);
      if (file.starts_with('.') && time(nullptr) - info.st_mtime > kAbandoned) {
        unlink(path.c_str());
      }
    }
    sum += folder.bytes;
    folders.push_back(std::move(folder));
  }
  std::ranges::sort(folders, [](const Folder& a, const Folder& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  bool has_removed = false;
  for (const Folder& folder : folders) {
    if (sum <= options_.most_bytes) break;
    if (std::ranges::find(touched_, folder.path) != touched_.end()) continue;
    remove_folder(folder.path);
    sum -= folder.bytes;
    has_removed = true;
  }
  if (!has_removed) return;
  // Records of files whose folders are gone, with the few that have none yet.
  for (const std::string& name : list(files_)) {
    const std::string path = files_ + "/" + name;
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    HashRecord record;
    const bool is_read =
        file.get() >= 0 && read(file.get(), &record, sizeof(record)) == sizeof(record);
    const std::string folder = packed_ + "/" + to_hex(record.contents);
    if (!is_read || access(folder.c_str(), F_OK) != 0) unlink(path.c_str());
  }
}

void Cache::finish() {
  const std::lock_guard lock(mutex_);
  remember_pending();
  if (!pending_.empty()) {  // a tick of the clock, once in a load that has written
    constexpr timespec kTick = {.tv_sec = 0, .tv_nsec = 25'000'000};
    nanosleep(&kTick, nullptr);
    remember_pending();
  }
  if (std::exchange(has_written_, false) && options_.most_bytes != 0) keep_within_bound();
}

Status Cache::check_whole() const {
  const std::lock_guard lock(mutex_);
  for (const auto& file : mapped_) {
    if (file->is_whole()) continue;
    return error(
        Code::kIo,
        "[cache] '%s' must stay as it is while it is in use; got pages that cannot be read "
        "any more, as of a file that was cut short; try loading the program again",
        file->name().c_str());
  }
  return {};
}

}  // namespace

std::unique_ptr<FileCache> open_cache(const CacheOptions& options,
                                      std::vector<CacheSource> sources) {
  auto cache = std::make_unique<Cache>(options, std::move(sources));
  return cache->prepare() ? std::move(cache) : nullptr;
}

}  // namespace edgewise::platform
