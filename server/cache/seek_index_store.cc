#include "server/cache/seek_index_store.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/atomic_file.h"
#include "server/base/fd.h"
#include "server/base/no_throw.h"
#include "server/base/own_files.h"
#include "server/base/status.h"
#include "server/storage/engine.h"

namespace feedwater::server {
namespace {

constexpr char kMagic[8] = "FWSEEK\n";
constexpr uint64_t kVersion = 1;
constexpr int64_t kStep = 1 << 20;      // memory is taken from the quota in such pieces
constexpr int64_t kBytesAnImage = 128;  // of memory, beside its document
constexpr uint64_t kMaxDocument = 64 << 20;
constexpr size_t kBuffer = 1 << 20;
constexpr double kGrowthToSave = 0.25;

struct FileHeader {
  char magic[8];
  uint64_t version;
};

struct ImageHeader {
  uint64_t checksum;  // of all behind it
  uint64_t low, high;
  uint64_t bytes;
};

uint64_t Checksum(const ImageHeader& header, const std::byte* document) {
  const uint64_t seed = XXH3_64bits(&header.low, sizeof(header) - sizeof(header.checksum));
  return XXH3_64bits_withSeed(document, header.bytes, seed);
}

// Reads a file through a buffer.
class Reader {
 public:
  explicit Reader(int fd) : fd_(fd), buffer_(kBuffer) {}
  // False at the end, or when less is left.
  bool Read(void* to, size_t bytes) {
    for (auto* out = static_cast<std::byte*>(to); bytes > 0;) {
      if (at_ == end_ && !Fill()) return false;
      const size_t some = std::min(bytes, end_ - at_);
      std::memcpy(out, buffer_.data() + at_, some);
      at_ += some;
      out += some;
      bytes -= some;
    }
    return true;
  }
  bool is_at_end() { return at_ == end_ && !Fill(); }

 private:
  bool Fill() {
    ssize_t got;
    do {
      got = read(fd_, buffer_.data(), buffer_.size());
    } while (got < 0 && errno == EINTR);
    at_ = 0;
    end_ = static_cast<size_t>(std::max<ssize_t>(got, 0));
    return got > 0;
  }

  const int fd_;
  std::vector<std::byte> buffer_;
  size_t at_ = 0, end_ = 0;
};

template <typename T>
absl::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace

std::string SeekIndexFile(const std::string& state_dir, const std::string& dataset) {
  return state_dir.empty() ? "" : absl::StrCat(state_dir, "/indexes/", dataset, ".seek");
}

bool IsSeekIndexFile(const std::string& path) {
  return BeginningOf(path, sizeof(kMagic)) == absl::string_view(kMagic, sizeof(kMagic));
}

SeekIndexStore::SeekIndexStore(Options options) : options_(std::move(options)) {
  auto keeper = (options_.saver != nullptr ? options_.saver : Saver::Create())
                    ->Add([this] { return KeepFile(); }, absl::Seconds(options_.save_seconds));
  if (keeper.ok()) {
    keeper_ = *std::move(keeper);
    keeper_->Wake();
  } else {  // they are kept in memory, and saved at the end
    spdlog::warn("{}", std::string(keeper.status().message()));
    ReadFirst();
  }
}

SeekIndexStore::~SeekIndexStore() {
  keeper_.reset();
  ReadFirst();
  if (absl::Status saved = Save(); !saved.ok())
    spdlog::warn("seek indexes: {}", std::string(saved.message()));
  MutexLock lock(&mu_);
  options_.quota->Give(room_ + bytes_.load());
}

bool SeekIndexStore::Find(const ContentHash& image, std::vector<std::byte>* document) const {
  document->clear();
  Document found;
  {
    const Shard& shard = ShardOf(image);
    MutexLock lock(&shard.mu);
    const auto it = shard.documents.find(image);
    if (it == shard.documents.end()) return false;
    found = it->second;
  }
  document->assign(found->begin(), found->end());
  return true;
}

void SeekIndexStore::Put(const ContentHash& image, absl::Span<const std::byte> document) {
  if (document.empty() || document.size() > kMaxDocument) return;
  const auto put = [&] {
    PutCopy(image, document);
    return absl::OkStatus();
  };
  // An image must not be lost for what would have made the next one cheaper.
  if (!NoThrow(put).ok()) refused_.fetch_add(1, std::memory_order_relaxed);
}

void SeekIndexStore::PutCopy(const ContentHash& image, absl::Span<const std::byte> document) {
  auto kept = std::make_shared<const std::vector<std::byte>>(document.begin(), document.end());
  const int64_t bytes = static_cast<int64_t>(document.size()) + kBytesAnImage;
  if (!TakeRoom(bytes)) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  int64_t freed = 0;
  {
    Shard& shard = ShardOf(image);
    MutexLock lock(&shard.mu);
    Document& place = shard.documents[image];
    if (place == nullptr) {
      images_.fetch_add(1, std::memory_order_relaxed);
    } else {
      const bool is_longer = document.size() > place->size();
      freed = is_longer ? static_cast<int64_t>(place->size()) + kBytesAnImage : bytes;
      if (!is_longer) kept = nullptr;
    }
    if (kept != nullptr) {
      place.swap(kept);
      changes_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  bytes_.fetch_add(bytes - freed, std::memory_order_relaxed);
  if (freed == 0) return;
  MutexLock lock(&mu_);
  room_ += freed;
}

bool SeekIndexStore::TakeRoom(int64_t bytes) {
  MutexLock lock(&mu_);
  if (bytes > room_) {
    const int64_t step = std::max(kStep, bytes);
    if (!options_.quota->Take(step)) return false;
    if (options_.budget != nullptr) {
      absl::StatusOr<MemoryReservation> reserved = options_.budget->Reserve("seek indexes", step);
      if (!reserved.ok()) {
        options_.quota->Give(step);
        return false;
      }
      reservations_.push_back(*std::move(reserved));
    }
    room_ += step;
  }
  room_ -= bytes;
  return true;
}

void SeekIndexStore::WaitUntilRead() {
  MutexLock lock(&mu_);
  while (!is_read_) changed_.Wait(&mu_);
}

SeekIndexStore::Counts SeekIndexStore::counts() const {
  Counts counts;
  counts.images = images_.load(std::memory_order_relaxed);
  counts.bytes = bytes_.load(std::memory_order_relaxed);
  counts.damaged = damaged_.load(std::memory_order_relaxed);
  counts.refused = refused_.load(std::memory_order_relaxed);
  return counts;
}

// False when that was done before.
bool SeekIndexStore::ReadFirst() {
  {
    MutexLock lock(&mu_);
    if (is_read_) return false;
  }
  {
    MutexLock lock(&save_mu_);
    ReadIfNew().IgnoreError();
    saved_bytes_ = bytes_.load();
  }
  MutexLock lock(&mu_);
  is_read_ = true;
  changed_.SignalAll();
  return true;
}

bool SeekIndexStore::KeepFile() {
  if (ReadFirst()) return false;
  bool has_grown;
  {
    MutexLock save(&save_mu_);
    ReadIfNew().IgnoreError();
    has_grown = static_cast<double>(bytes_.load()) >
                static_cast<double>(saved_bytes_) * (1 + kGrowthToSave);
  }
  if (has_grown) {
    if (absl::Status status = Save(); !status.ok())
      spdlog::warn("seek indexes: {}", std::string(status.message()));
  }
  return false;
}

// What others have written counts as saved; a damaged file does not.
absl::Status SeekIndexStore::ReadIfNew() {
  struct stat info;
  if (options_.file.empty() || lstat(options_.file.c_str(), &info) != 0) return absl::OkStatus();
  if (FileStamp(info) == file_stamp_) return absl::OkStatus();
  file_stamp_ = FileStamp(info);
  const uint64_t unsaved = changes_.load() - saved_changes_;
  const absl::Status read = NoThrow([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return Read(); });
  saved_changes_ = changes_.load() - unsaved;
  if (!read.ok()) {
    spdlog::warn("seek indexes: {}; missing ones are rebuilt", std::string(read.message()));
    damaged_ = 1;
    --saved_changes_;
  }
  return read;
}

absl::Status SeekIndexStore::Read() {
  const Fd fd(open(options_.file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info;
  if (!fd || fstat(fd.get(), &info) != 0)
    return ErrnoStatus(errno, absl::StrCat("opening ", options_.file));
  if (!S_ISREG(info.st_mode))
    return absl::DataLossError(absl::StrCat(options_.file, " is no regular file"));
  Reader reader(fd.get());
  FileHeader file;
  if (!reader.Read(&file, sizeof(file)) || std::memcmp(file.magic, kMagic, sizeof(kMagic)) != 0 ||
      file.version != kVersion) {
    return absl::DataLossError(
        absl::StrCat(options_.file, " holds no seek indexes of this version"));
  }
  std::vector<std::byte> document;
  while (!reader.is_at_end()) {
    ImageHeader header;
    if (!reader.Read(&header, sizeof(header)) || header.bytes > kMaxDocument ||
        header.bytes > static_cast<uint64_t>(info.st_size)) {
      return absl::DataLossError(absl::StrCat(options_.file, " is cut or damaged"));
    }
    document.resize(header.bytes);
    if (!reader.Read(document.data(), document.size()) ||
        Checksum(header, document.data()) != header.checksum) {
      return absl::DataLossError(absl::StrCat(options_.file, " is cut or damaged"));
    }
    Put({header.low, header.high}, document);
  }
  return absl::OkStatus();
}

absl::Status SeekIndexStore::Save() {
  WaitUntilRead();
  if (options_.file.empty()) return absl::OkStatus();
  MutexLock lock(&save_mu_);
  ReadIfNew().IgnoreError();  // or what somebody else has written would be lost
  const uint64_t changes = changes_.load();
  const int64_t bytes = bytes_.load();
  if (changes == saved_changes_) return absl::OkStatus();
  FW_RETURN_IF_ERROR(WriteFileAtomically(options_.file, [this](int fd) { return Write(fd); }));
  struct stat info;
  if (lstat(options_.file.c_str(), &info) == 0) file_stamp_ = FileStamp(info);
  saved_changes_ = changes;
  saved_bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status SeekIndexStore::Write(int fd) const {
  std::string buffer;
  FileHeader file = {{}, kVersion};
  std::memcpy(file.magic, kMagic, sizeof(kMagic));
  absl::StrAppend(&buffer, BytesOf(file));
  for (const Shard& shard : shards_) {
    std::vector<std::pair<ContentHash, Document>> documents;  // written without the lock
    {
      MutexLock lock(&shard.mu);
      documents.assign(shard.documents.begin(), shard.documents.end());
    }
    for (const auto& [image, document] : documents) {
      ImageHeader header = {0, image.low, image.high, document->size()};
      header.checksum = Checksum(header, document->data());
      absl::StrAppend(
          &buffer, BytesOf(header),
          absl::string_view(reinterpret_cast<const char*>(document->data()), document->size()));
      if (buffer.size() < kBuffer) continue;
      FW_RETURN_IF_ERROR(WriteAll(fd, buffer));
      buffer.clear();
    }
  }
  return WriteAll(fd, buffer);
}

}  // namespace feedwater::server
