#include "server/codec/jpeg/coefficient_store.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/codec/jpeg/header_walk.h"
#include "server/codec/jpeg/packed_block.h"
#include "server/codec/jpeg/pixel_kernels.h"

namespace feedwater::server::jpeg {
namespace {

constexpr uint32_t kMagic = 0x53435746;  // "FWCS"

struct Header {
  uint32_t magic, version;
  uint64_t checksum, bytes;
  uint32_t width, height;
  uint8_t components, h[3], v[3], orientation;
};
static_assert(sizeof(Header) == 40);
constexpr size_t kChecksummedFrom = offsetof(Header, bytes);

size_t CheckpointsOf(int blocks) {
  return static_cast<size_t>(blocks + kCheckpointBlocks - 1) / kCheckpointBlocks;
}

// Bytes of a row before its payload.
size_t RowHeadBytes(int blocks) {
  return CheckpointsOf(blocks) * kCheckpointBytes + blocks * kBlockHeaderBytes;
}

uint16_t ReadU16(const uint8_t* from) {
  uint16_t value;
  std::memcpy(&value, from, 2);
  return value;
}

}  // namespace

int64_t MostStoreBytes(int64_t encoded_bytes, Size size) {
  constexpr int64_t kFixedBytes = 4 << 10, kPixelsPerHeaderByte = 4;
  return kFixedBytes + 2 * encoded_bytes +
         static_cast<int64_t>(size.width) * size.height / kPixelsPerHeaderByte;
}

bool StorePacker::Start(const FrameShape& shape, const uint16_t (*quant)[64], int orientation,
                        int64_t most_bytes) {
  shape_ = {};
  most_bytes_ = static_cast<size_t>(most_bytes);
  orientation_ = orientation;
  bytes_ = 0;
  if (!PlanesSupport(shape)) return false;
  for (int c = 0; c < shape.components; ++c) {
    for (int i = 0; i < 64; ++i) {
      if (quant[c][i] < 1 || quant[c][i] > 255) return false;
    }
  }
  shape_ = shape;
  std::memcpy(quant_, quant, sizeof(quant_[0]) * shape.components);
  bytes_ = sizeof(Header) + 64 * static_cast<size_t>(shape.components);
  for (int c = 0; c < shape.components; ++c) {
    offsets_at_[c] = bytes_;
    bytes_ += sizeof(uint32_t) * shape.blocks_high(c);
    rows_[c] = 0;
  }
  if (document_.size() < bytes_) document_.resize(bytes_);
  for (int c = 0; c < shape.components; ++c) {
    for (int i = 0; i < 64; ++i) {
      document_[sizeof(Header) + 64 * c + i] = static_cast<uint8_t>(quant[c][i]);
    }
  }
  return true;
}

bool StorePacker::AddRow(int c, const int16_t* coefficients) {
  if (c >= shape_.components || rows_[c] >= shape_.blocks_high(c)) return false;
  const int blocks = shape_.blocks_wide(c);
  if (!ActivePixelKernels().check_row(coefficients, blocks, quant_[c])) return false;
  const size_t room = RowHeadBytes(blocks) + blocks * kMaxPayload + kPayloadPadding;
  if (bytes_ > most_bytes_) return false;
  if (bytes_ > std::numeric_limits<uint32_t>::max() - room) return false;
  if (document_.size() < bytes_ + room) document_.resize(2 * bytes_ + room);
  const auto offset = static_cast<uint32_t>(bytes_);
  std::memcpy(&document_[offsets_at_[c] + sizeof(offset) * rows_[c]], &offset, sizeof(offset));
  ++rows_[c];
  uint8_t* row = document_.data() + bytes_;
  uint8_t* headers = row + CheckpointsOf(blocks) * kCheckpointBytes;
  bytes_ += RowHeadBytes(blocks);
  bytes_ += PackRow(coefficients, blocks, row, headers, document_.data() + bytes_);
  return true;
}

absl::Span<const uint8_t> StorePacker::Finish() {
  if (shape_.components == 0 || bytes_ > most_bytes_) return {};
  for (int c = 0; c < shape_.components; ++c) {
    if (rows_[c] != shape_.blocks_high(c)) return {};
  }
  document_.resize(std::max(document_.size(), bytes_ + kPayloadPadding));
  std::memset(&document_[bytes_], 0, kPayloadPadding);
  bytes_ += kPayloadPadding;
  Header header = {};
  header.magic = kMagic;
  header.version = kStoreVersion;
  header.bytes = bytes_;
  header.width = static_cast<uint32_t>(shape_.size.width);
  header.height = static_cast<uint32_t>(shape_.size.height);
  header.components = static_cast<uint8_t>(shape_.components);
  header.orientation = static_cast<uint8_t>(orientation_);
  for (int c = 0; c < shape_.components; ++c) {
    header.h[c] = static_cast<uint8_t>(shape_.h[c]);
    header.v[c] = static_cast<uint8_t>(shape_.v[c]);
  }
  std::memcpy(document_.data(), &header, sizeof(header));
  header.checksum = XXH3_64bits(document_.data() + kChecksummedFrom, bytes_ - kChecksummedFrom);
  std::memcpy(document_.data(), &header, sizeof(header));
  shape_ = {};  // a second Finish without Start is empty
  return {document_.data(), bytes_};
}

namespace {

absl::Status Damaged(absl::string_view why) {
  return absl::DataLossError(absl::StrCat("coefficient document: ", why));
}

absl::StatusOr<Header> ReadHeader(absl::Span<const uint8_t> document) {
  Header header;
  if (document.size() < sizeof(header)) return Damaged("shorter than its header");
  std::memcpy(&header, document.data(), sizeof(header));
  if (header.magic != kMagic) return Damaged("another kind of file");
  if (header.version != kStoreVersion) {
    return Damaged(absl::StrCat("version ", header.version, ", expected ", kStoreVersion,
                                ": another version of Feedwater wrote it; cure: convert the JPEGs "
                                "again"));
  }
  if (header.bytes != document.size()) {
    return Damaged(absl::StrCat(document.size(), " bytes of ", header.bytes));
  }
  constexpr uint32_t kMaxSide = 65'535;
  if (header.width < 1 || header.height < 1 || header.width > kMaxSide ||
      header.height > kMaxSide || header.components > kMaxComponents || header.orientation < 1 ||
      header.orientation > 8) {
    return Damaged("not an image");
  }
  return header;
}

}  // namespace

bool IsStore(absl::Span<const uint8_t> bytes) {
  return bytes.size() >= sizeof(kMagic) && std::memcmp(bytes.data(), &kMagic, sizeof(kMagic)) == 0;
}

absl::StatusOr<StoreInfo> ReadStoreInfo(absl::Span<const uint8_t> document) {
  FW_ASSIGN_OR_RETURN(const Header header, ReadHeader(document));
  return StoreInfo{{static_cast<int>(header.width), static_cast<int>(header.height)},
                   header.orientation};
}

absl::StatusOr<StoreView> StoreView::Open(absl::Span<const uint8_t> document) {
  FW_ASSIGN_OR_RETURN(const Header header, ReadHeader(document));
  StoreView view;
  view.document_ = document;
  view.shape_.size = {static_cast<int>(header.width), static_cast<int>(header.height)};
  view.shape_.components = header.components;
  for (int c = 0; c < header.components; ++c) {
    view.shape_.h[c] = header.h[c];
    view.shape_.v[c] = header.v[c];
  }
  if (!PlanesSupport(view.shape_)) return Damaged("an image that is not covered");
  size_t at = sizeof(header) + 64 * static_cast<size_t>(header.components);
  for (int c = 0; c < header.components; ++c) {
    view.offsets_at_[c] = at;
    at += sizeof(uint32_t) * view.shape_.blocks_high(c);
  }
  // At most 3 * 8192 rows, so that the sum is small.
  if (at + kPayloadPadding > document.size()) return Damaged("rows are missing");
  for (int c = 0; c < header.components; ++c) {
    const uint8_t* steps = document.data() + sizeof(header) + 64 * c;
    for (int i = 0; i < 64; ++i) {
      if (steps[i] == 0) return Damaged("a quantisation step of 0");
      view.quant_[c][i] = steps[i];
    }
    const size_t end = document.size() - kPayloadPadding;
    const size_t head = RowHeadBytes(view.shape_.blocks_wide(c));
    for (int row = 0; row < view.shape_.blocks_high(c); ++row) {
      uint32_t offset;
      std::memcpy(&offset, document.data() + view.offsets_at_[c] + sizeof(offset) * row,
                  sizeof(offset));
      if (offset < at || offset > end || end - offset < head) return Damaged("a row lies outside");
    }
  }
  return view;
}

bool StoreView::Seek(int c, int block_row, int column, PackedBlocks* from, int* skip) const {
  uint32_t offset;
  std::memcpy(&offset, document_.data() + offsets_at_[c] + sizeof(offset) * block_row,
              sizeof(offset));
  const int blocks = shape_.blocks_wide(c);
  const uint8_t* row = document_.data() + offset;
  const int checkpoint = column / kCheckpointBlocks;
  size_t before = 0;
  for (int i = 0; i < checkpoint; ++i) before += ReadU16(row + kCheckpointBytes * i);
  const size_t payload = offset + RowHeadBytes(blocks), end = document_.size() - kPayloadPadding;
  if (before > end - payload) return false;
  from->headers = row + CheckpointsOf(blocks) * kCheckpointBytes +
                  static_cast<size_t>(checkpoint) * kCheckpointBlocks * kBlockHeaderBytes;
  from->payload = document_.data() + payload + before;
  from->payload_bytes = end - payload - before;
  from->dc = static_cast<int16_t>(ReadU16(row + kCheckpointBytes * checkpoint + 2));
  *skip = column % kCheckpointBlocks;
  return true;
}

bool StoreView::UnpackRow(int c, int block_row, int column, int count,
                          int16_t* coefficients) const {
  PackedBlocks from;
  int skip;
  if (!Seek(c, block_row, column, &from, &skip)) return false;
  HeaderWalk walk(from);
  for (int i = 0; i < skip + count; ++i) {
    if (!walk.Next() || !walk.WithinPayload()) return false;
    if (i < skip) continue;
    int16_t* block = coefficients + 64 * static_cast<size_t>(i - skip);
    UnpackBlockPlain(walk.header, from.payload + walk.groups, block);
    ApplyExceptions(walk.exception, walk.exceptions, nullptr, block);
    block[0] = static_cast<int16_t>(walk.dc());
  }
  return true;
}

absl::Status VerifyStore(absl::Span<const uint8_t> document) {
  const auto view = StoreView::Open(document);
  if (!view.ok()) return view.status();
  uint64_t checksum;
  std::memcpy(&checksum, document.data() + offsetof(Header, checksum), sizeof(checksum));
  if (XXH3_64bits(document.data() + kChecksummedFrom, document.size() - kChecksummedFrom) !=
      checksum) {
    return absl::DataLossError("coefficient document: checksum does not match");
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server::jpeg
