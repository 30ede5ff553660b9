#include "server/source/riegeli.h"

#include <highwayhash/c_bindings.h>
#include <highwayhash/highwayhash.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "server/source/wire_reader.h"

namespace feedwater::server {
namespace {

constexpr uint64_t kUsable = kRiegeliBlock - kRiegeliBlockHeader;
constexpr char kNone = 0, kZstd = 'z', kBrotli = 'b', kSnappy = 's';
constexpr uint64_t kMaxVarint = 10;
constexpr uint64_t kMaxSizes = ColumnValues::kMaxScratchBytes;  // of a group's records

constexpr size_t kPiece = 1 << 20;  // of a chunk that is unpacked as a stream

// "Riegeli/", "records\n", twice.
alignas(32) constexpr HHKey kHashKey = {0x2f696c6567656952, 0x0a7364726f636572, 0x2f696c6567656952,
                                        0x0a7364726f636572};

uint64_t HashOf(absl::string_view bytes) {
  return HighwayHash64(kHashKey, bytes.data(), bytes.size());
}

template <typename T>
T Load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

absl::StatusOr<RiegeliChunk> ParseHeader(const char* header) {
  RiegeliChunk chunk;
  if (Load<uint64_t>(header) != HashOf({header + 8, kRiegeliChunkHeader - 8}))
    return absl::DataLossError("has no chunk header, or a damaged one");
  chunk.data_bytes = Load<uint64_t>(header + 8);
  chunk.data_hash = Load<uint64_t>(header + 16);
  const auto type_and_records = Load<uint64_t>(header + 24);
  chunk.type = static_cast<RiegeliChunk::Type>(type_and_records & 0xff);
  chunk.records = type_and_records >> 8;
  chunk.decoded_bytes = Load<uint64_t>(header + 32);
  if (chunk.data_bytes > UINT64_MAX / 4)
    return absl::DataLossError("has a chunk of impossible size");
  return chunk;
}

// A compressed block says how large it is unpacked.
absl::Status Unpack(absl::string_view packed, absl::string_view what, uint64_t bytes, char* to) {
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  thread_local const std::unique_ptr<ZSTD_DCtx, Free> context(ZSTD_createDCtx());
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for zstd");
  const size_t got = ZSTD_decompressDCtx(context.get(), to, bytes, packed.data(), packed.size());
  if (!ZSTD_isError(got) && got == bytes) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("has ", what, " that zstd does not unpack",
                   ZSTD_isError(got) ? absl::StrCat(": ", ZSTD_getErrorName(got)) : std::string()));
}

// The parts of a simple chunk's data.
struct Parts {
  bool is_packed = false;
  absl::string_view sizes, values;
  uint64_t sizes_bytes = 0, values_bytes = 0;  // unpacked
};

absl::StatusOr<Parts> Split(const RiegeliChunk& chunk, absl::string_view data) {
  const absl::Status wrong = absl::DataLossError("has a group whose parts do not fit together");
  if (data.empty()) return wrong;
  const char compression = data[0];
  const std::string why = WhyUnreadableRiegeli(chunk.type, compression);
  if (!why.empty()) return absl::InvalidArgumentError(why);
  Parts parts;
  parts.is_packed = compression == kZstd;
  data.remove_prefix(1);
  uint64_t sizes = 0;
  if (!TakeVarint(&data, &sizes) || sizes > data.size()) return wrong;
  parts.sizes = data.substr(0, static_cast<size_t>(sizes));
  parts.values = data.substr(static_cast<size_t>(sizes));
  if (parts.is_packed && (!TakeVarint(&parts.sizes, &parts.sizes_bytes) ||
                          !TakeVarint(&parts.values, &parts.values_bytes))) {
    return wrong;
  }
  if (!parts.is_packed) {
    parts.sizes_bytes = parts.sizes.size();
    parts.values_bytes = parts.values.size();
  }
  if (parts.values_bytes != chunk.decoded_bytes || chunk.records > UINT32_MAX ||
      parts.sizes_bytes > chunk.records * kMaxVarint || parts.sizes_bytes > kMaxSizes) {
    return wrong;
  }
  return parts;
}

// Where a record lies among the values.
absl::Status Locate(absl::string_view sizes, const RiegeliChunk& chunk, uint64_t record,
                    uint64_t* offset, uint64_t* bytes) {
  uint64_t at = 0;
  for (uint64_t i = 0; i < chunk.records; ++i) {
    uint64_t size = 0;
    if (!TakeVarint(&sizes, &size) || size > chunk.decoded_bytes - at)
      return absl::DataLossError("has a group whose records' sizes do not add up");
    if (i == record) {
      *offset = at;
      *bytes = size;
    }
    at += size;
  }
  if (at != chunk.decoded_bytes || !sizes.empty())
    return absl::DataLossError("has a group whose records' sizes do not add up");
  return absl::OkStatus();
}

// The data of a chunk from its beginning to its end, hashed on the way.
class ChunkData {
 public:
  ChunkData(FileWindow* window, uint64_t at, const RiegeliChunk& chunk)
      : window_(window), at_(RiegeliEnd(at, kRiegeliChunkHeader)), left_(chunk.data_bytes) {}

  uint64_t left() const { return left_; }
  // The next `bytes` bytes, valid until the next call. REQUIRES: bytes <= left().
  absl::StatusOr<absl::string_view> Take(uint64_t bytes) {
    const uint64_t end = RiegeliEnd(at_, bytes);
    if (!window_->Holds(static_cast<int64_t>(at_), static_cast<int64_t>(end - at_)))
      return absl::DataLossError("has a group that is cut off");
    FW_RETURN_IF_ERROR(
        window_->Read(static_cast<int64_t>(at_), static_cast<size_t>(end - at_), &raw_));
    bytes_.resize(static_cast<size_t>(bytes));
    if (!CopyRiegeli(raw_, at_, bytes, bytes_.data()))
      return absl::DataLossError("has a group that is cut off");
    hash_.Append(bytes_.data(), bytes_.size());
    at_ = end;
    left_ -= bytes;
    return absl::string_view(bytes_);
  }
  absl::StatusOr<uint64_t> TakeNumber(const absl::Status& wrong) {
    std::string varint;
    uint64_t number = 0;
    do {
      if (left_ == 0 || varint.size() == kMaxVarint) return wrong;
      FW_ASSIGN_OR_RETURN(const absl::string_view byte, Take(1));
      varint += byte[0];
    } while ((varint.back() & 0x80) != 0);
    absl::string_view rest = varint;
    if (!TakeVarint(&rest, &number)) return wrong;
    return number;
  }
  // REQUIRES: left() == 0.
  uint64_t Hash() {
    highwayhash::HHResult64 hash = 0;
    hash_.Finalize(&hash);
    return hash;
  }

 private:
  FileWindow* const window_;
  uint64_t at_, left_;
  std::string raw_, bytes_;
  highwayhash::HighwayHashCatT<HH_TARGET> hash_{kHashKey};
};

// Cuts values that come in pieces into records.
class RecordCutter {
 public:
  RecordCutter(absl::string_view sizes, const RiegeliChunk& chunk,
               const std::function<absl::Status(uint64_t)>& begin,
               const std::function<absl::Status(absl::string_view)>& append)
      : sizes_(sizes),
        records_(chunk.records),
        left_(chunk.decoded_bytes),
        begin_(begin),
        append_(append) {}

  absl::Status Add(absl::string_view bytes) {
    while (!bytes.empty()) {
      while (record_left_ == 0) FW_RETURN_IF_ERROR(Next());
      const absl::string_view part =
          bytes.substr(0, static_cast<size_t>(std::min<uint64_t>(record_left_, bytes.size())));
      FW_RETURN_IF_ERROR(append_(part));
      record_left_ -= part.size();
      bytes.remove_prefix(part.size());
    }
    return absl::OkStatus();
  }
  // Records without bytes may stand at the end.
  absl::Status Finish() {
    while (record_left_ == 0 && records_ > 0) FW_RETURN_IF_ERROR(Next());
    return record_left_ == 0 && left_ == 0 && sizes_.empty() ? absl::OkStatus() : wrong_;
  }

 private:
  absl::Status Next() {
    if (records_ == 0 || !TakeVarint(&sizes_, &record_left_) || record_left_ > left_) return wrong_;
    --records_;
    left_ -= record_left_;
    return begin_(record_left_);
  }

  const absl::Status wrong_ = absl::DataLossError("has a group whose records' sizes do not add up");
  absl::string_view sizes_;
  uint64_t records_, left_, record_left_ = 0;
  const std::function<absl::Status(uint64_t)>& begin_;
  const std::function<absl::Status(absl::string_view)>& append_;
};

// Gives what packed values unpack to, in pieces, and all of it.
absl::Status UnpackInPieces(ChunkData* data, uint64_t bytes, RecordCutter* cutter) {
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  const std::unique_ptr<ZSTD_DCtx, Free> context(ZSTD_createDCtx());
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for zstd");
  constexpr int kMaxWindow = 27;  // 128 MiB, as zstd's own tool
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kMaxWindow);
  std::string piece(kPiece, '\0');
  size_t wants = 1;  // 0: where a frame ends
  while (data->left() > 0) {
    FW_ASSIGN_OR_RETURN(const absl::string_view packed,
                        data->Take(std::min<uint64_t>(kPiece, data->left())));
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    bool is_full = true;
    while (in.pos < in.size || is_full) {
      ZSTD_outBuffer out{piece.data(), piece.size(), 0};
      if (wants == 0 && in.pos == in.size) break;
      wants = ZSTD_decompressStream(context.get(), &out, &in);
      if (ZSTD_isError(wants)) {
        return absl::DataLossError(absl::StrCat("has a group with records that zstd does not ",
                                                "unpack: ", ZSTD_getErrorName(wants)));
      }
      if (out.pos > bytes)
        return absl::DataLossError("has a group whose parts do not fit together");
      bytes -= out.pos;
      FW_RETURN_IF_ERROR(cutter->Add({piece.data(), out.pos}));
      is_full = out.pos == out.size;
    }
  }
  if (wants == 0 && bytes == 0) return absl::OkStatus();
  return absl::DataLossError("has a group with records that zstd does not unpack: it is cut off");
}

}  // namespace

uint64_t RiegeliEnd(uint64_t at, uint64_t bytes) {
  const uint64_t headers = (bytes + (at + kUsable - 1) % kRiegeliBlock) / kUsable;
  return at + bytes + headers * kRiegeliBlockHeader;
}

uint64_t RiegeliNextChunk(uint64_t at, const RiegeliChunk& chunk) {
  // A chunk has as many bytes as records, at least, and does not end in or at a block header.
  const uint64_t least = at + chunk.records;
  const uint64_t rest = (kRiegeliBlock - least % kRiegeliBlock) % kRiegeliBlock;
  const uint64_t boundary = least + (rest > kUsable - 1 ? rest - (kUsable - 1) : 0);
  return std::max(RiegeliEnd(at, kRiegeliChunkHeader + chunk.data_bytes), boundary);
}

bool CopyRiegeli(absl::string_view file, uint64_t at, uint64_t length, char* to) {
  while (length > 0) {
    if (at % kRiegeliBlock == 0) {
      if (file.size() < kRiegeliBlockHeader) return false;
      file.remove_prefix(kRiegeliBlockHeader);
      at += kRiegeliBlockHeader;
    }
    const uint64_t part = std::min(length, kRiegeliBlock - at % kRiegeliBlock);
    if (file.size() < part) return false;
    std::memcpy(to, file.data(), part);
    file.remove_prefix(part);
    at += part;
    to += part;
    length -= part;
  }
  return true;
}

absl::StatusOr<RiegeliChunk> ParseRiegeliChunk(absl::string_view file, uint64_t at) {
  char header[kRiegeliChunkHeader];
  if (!CopyRiegeli(file, at, sizeof(header), header))
    return absl::DataLossError("has no chunk header: it ends before");
  return ParseHeader(header);
}

absl::StatusOr<RiegeliChunk> ReadRiegeliChunk(FileWindow* window, uint64_t at, char* compression) {
  char raw[kRiegeliChunkHeader + 1 + 2 * kRiegeliBlockHeader];
  const uint64_t left = static_cast<uint64_t>(window->bytes()) - at;
  const auto length = static_cast<size_t>(std::min(RiegeliEnd(at, kRiegeliChunkHeader + 1) - at,
                                                   std::min<uint64_t>(left, sizeof(raw))));
  FW_RETURN_IF_ERROR(window->Read(static_cast<int64_t>(at), length, raw));
  char header[kRiegeliChunkHeader + 1] = {};
  const absl::string_view file(raw, length);
  if (!CopyRiegeli(file, at, kRiegeliChunkHeader + 1, header) &&
      !CopyRiegeli(file, at, kRiegeliChunkHeader, header)) {
    return absl::DataLossError("has no chunk header: it ends before");
  }
  FW_ASSIGN_OR_RETURN(const RiegeliChunk chunk, ParseHeader(header));
  *compression = chunk.data_bytes > 0 ? header[kRiegeliChunkHeader] : 0;
  return chunk;
}

std::string WhyUnreadableRiegeli(RiegeliChunk::Type type, char compression) {
  constexpr const char* kCure =
      "; cure: write it with ArrayRecordWriter(path, 'group_size:1,zstd') or "
      "'group_size:1,uncompressed'";
  if (type == RiegeliChunk::Type::kTransposed)
    return absl::StrCat("has transposed groups, which are not read", kCure);
  if (type != RiegeliChunk::Type::kSimple) return "has something else than records in it";
  if (compression == kNone || compression == kZstd) return "";
  const char* name = compression == kBrotli   ? "Brotli"
                     : compression == kSnappy ? "Snappy"
                                              : "something unknown";
  return absl::StrCat("has groups compressed with ", name, ", which is not read", kCure);
}

absl::Status ReadRiegeliRecord(absl::string_view file, uint64_t at, uint64_t records,
                               uint64_t record, size_t column, ColumnValues* values) {
  const absl::Status cut_off = absl::DataLossError("has a group that is cut off");
  FW_ASSIGN_OR_RETURN(const RiegeliChunk chunk, ParseRiegeliChunk(file, at));
  if (chunk.type != RiegeliChunk::Type::kSimple || chunk.records != records || record >= records)
    return absl::DataLossError("has another group here than was indexed");
  const uint64_t begin = RiegeliEnd(at, kRiegeliChunkHeader);
  const uint64_t end = RiegeliEnd(at, kRiegeliChunkHeader + chunk.data_bytes);
  if (end - at > file.size() || chunk.data_bytes == 0) return cut_off;
  file = file.substr(static_cast<size_t>(begin - at), static_cast<size_t>(end - begin));

  // In scratch: the data, where block headers interrupt them, and the values, where packed.
  char compression = kNone;
  if (!CopyRiegeli(file, begin, 1, &compression)) return cut_off;
  const uint64_t copied = file.size() == chunk.data_bytes ? 0 : chunk.data_bytes;
  const uint64_t unpacked = compression == kZstd ? chunk.decoded_bytes : 0;
  char* scratch = nullptr;
  if (copied + unpacked > 0) {
    const uint64_t room = std::max(copied, unpacked) > ColumnValues::kMaxScratchBytes
                              ? UINT64_MAX / 4
                              : copied + unpacked;
    scratch = reinterpret_cast<char*>(values->Make(column, {static_cast<int64_t>(room)}, room));
    if (scratch == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("has a group of ", chunk.data_bytes,
                                                     " bytes, ", chunk.decoded_bytes,
                                                     " unpacked, more than a record may take"));
  }
  absl::string_view data = file;
  if (copied > 0) {
    if (!CopyRiegeli(file, begin, copied, scratch)) return cut_off;
    data = {scratch, static_cast<size_t>(copied)};
  }
  if (HashOf(data) != chunk.data_hash)
    return absl::DataLossError("has a group whose bytes do not have the hash that is stored");

  FW_ASSIGN_OR_RETURN(const Parts parts, Split(chunk, data));
  std::string sizes;
  if (parts.is_packed) {
    sizes.resize(static_cast<size_t>(parts.sizes_bytes));
    FW_RETURN_IF_ERROR(Unpack(parts.sizes, "sizes", sizes.size(), sizes.data()));
    FW_RETURN_IF_ERROR(Unpack(parts.values, "records", unpacked, scratch + copied));
  }
  uint64_t offset = 0, bytes = 0;
  FW_RETURN_IF_ERROR(Locate(parts.is_packed ? absl::string_view(sizes) : parts.sizes, chunk, record,
                            &offset, &bytes));
  if (scratch == nullptr) {
    values->SetBytes(column, parts.values.data() + offset, static_cast<size_t>(bytes));
  } else {
    const uint64_t first =
        parts.is_packed ? copied : static_cast<uint64_t>(parts.values.data() - scratch);
    values->Narrow(column, static_cast<size_t>(first + offset), static_cast<size_t>(bytes));
  }
  return absl::OkStatus();
}

absl::Status UnpackRiegeliChunk(FileWindow* window, uint64_t at, const RiegeliChunk& chunk,
                                const std::function<absl::Status(uint64_t bytes)>& begin,
                                const std::function<absl::Status(absl::string_view)>& append) {
  const absl::Status wrong = absl::DataLossError("has a group whose parts do not fit together");
  ChunkData data(window, at, chunk);
  if (data.left() == 0) return wrong;
  FW_ASSIGN_OR_RETURN(const absl::string_view compression, data.Take(1));
  const bool is_packed = compression[0] == kZstd;
  const std::string why = WhyUnreadableRiegeli(chunk.type, compression[0]);
  if (!why.empty()) return absl::InvalidArgumentError(why);
  FW_ASSIGN_OR_RETURN(const uint64_t sizes_length, data.TakeNumber(wrong));
  // Each size takes ten bytes at the most, and zstd makes little more of what it cannot pack.
  const uint64_t most = std::min(kMaxSizes, chunk.records * kMaxVarint);
  if (sizes_length > data.left() ||
      sizes_length > (is_packed ? ZSTD_compressBound(most) + kMaxVarint : most))
    return wrong;
  std::string sizes;
  {
    FW_ASSIGN_OR_RETURN(absl::string_view stored, data.Take(sizes_length));
    if (is_packed) {
      uint64_t sizes_bytes = 0;
      if (!TakeVarint(&stored, &sizes_bytes) || sizes_bytes > most) return wrong;
      sizes.resize(static_cast<size_t>(sizes_bytes));
      FW_RETURN_IF_ERROR(Unpack(stored, "sizes", sizes.size(), sizes.data()));
    } else {
      sizes = std::string(stored);
    }
  }
  RecordCutter cutter(sizes, chunk, begin, append);
  if (is_packed) {
    FW_ASSIGN_OR_RETURN(const uint64_t bytes, data.TakeNumber(wrong));
    if (bytes != chunk.decoded_bytes) return wrong;
    FW_RETURN_IF_ERROR(UnpackInPieces(&data, bytes, &cutter));
  } else {
    if (data.left() != chunk.decoded_bytes) return wrong;
    while (data.left() > 0) {
      FW_ASSIGN_OR_RETURN(const absl::string_view piece,
                          data.Take(std::min<uint64_t>(kPiece, data.left())));
      FW_RETURN_IF_ERROR(cutter.Add(piece));
    }
  }
  FW_RETURN_IF_ERROR(cutter.Finish());
  if (data.Hash() != chunk.data_hash)
    return absl::DataLossError("has a group whose bytes do not have the hash that is stored");
  return absl::OkStatus();
}

}  // namespace feedwater::server
