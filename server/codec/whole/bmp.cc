#include "server/codec/whole/bmp.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

using Bytes = absl::Span<const std::byte>;

enum Compression : uint32_t { kPlain = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3 };

constexpr size_t kFileHeader = 14;  // the info header follows
constexpr size_t kOldInfo = 12, kLeastInfo = 36;

class BmpDecoder final : public WholeDecoder {
 public:
  absl::StatusOr<WholeHeader> Open(Bytes encoded, const ImageLimits& limits) override {
    clock_.Start(limits);
    bytes_ = encoded;
    if (bytes_.size() < kFileHeader + kOldInfo) return DamagedImage("BMP", "ends in the header");
    pixels_at_ = LittleEndian(bytes_, 10, 4);
    const uint64_t info = LittleEndian(bytes_, kFileHeader, 4);
    if (info != kOldInfo && (info < kLeastInfo || info > bytes_.size() - kFileHeader))
      return DamagedImage("BMP", "header of a wrong size");
    int64_t width, height;
    if (info == kOldInfo) {
      width = LittleEndian(bytes_, 18, 2);
      height = LittleEndian(bytes_, 20, 2);
      bits_ = static_cast<int>(LittleEndian(bytes_, 24, 2));
    } else {
      width = static_cast<int32_t>(LittleEndian(bytes_, 18, 4));
      height = static_cast<int32_t>(LittleEndian(bytes_, 22, 4));
      bits_ = static_cast<int>(LittleEndian(bytes_, 28, 2));
      compression_ = static_cast<uint32_t>(LittleEndian(bytes_, 30, 4));
    }
    top_down_ = height < 0;
    if (width < 0) return DamagedImage("BMP", "header of a wrong size");
    WholeHeader header;
    FW_ASSIGN_OR_RETURN(header.size, CheckedSize("BMP", width, std::abs(height), limits));
    size_ = header.size;
    FW_RETURN_IF_ERROR(CheckKind());
    if (bits_ <= 8) FW_RETURN_IF_ERROR(ReadPalette(info));
    if (bits_ == 16 || bits_ == 32) FW_RETURN_IF_ERROR(ReadMasks(info));
    stride_ = ((static_cast<uint64_t>(size_.width) * bits_ + 7) / 8 + 3) & ~3ull;
    if (pixels_at_ > bytes_.size() ||
        (!IsInRuns() && stride_ * size_.height > bytes_.size() - pixels_at_))
      return Cut();
    return header;
  }

  absl::Status Decode(uint8_t* rgb) override {
    if (IsInRuns()) return DecodeRuns(rgb);
    const auto* row = reinterpret_cast<const uint8_t*>(bytes_.data()) + pixels_at_;
    for (int y = 0; y < size_.height; ++y, row += stride_) {
      if (clock_.IsOver()) return clock_.Over("BMP");
      uint8_t* out = rgb + static_cast<size_t>(Row(y)) * size_.width * 3;
      for (int x = 0; x < size_.width; ++x, out += 3) WritePixel(row, x, out);
    }
    return absl::OkStatus();
  }

 private:
  struct Colour {
    uint8_t rgb[3] = {0, 0, 0};
  };

  static absl::Status Cut() { return DamagedImage("BMP", "the file is cut"); }

  bool IsInRuns() const { return compression_ == kRle8 || compression_ == kRle4; }

  // Row y of the file, counted from the picture's top.
  int Row(int y) const { return top_down_ ? y : size_.height - 1 - y; }

  absl::Status CheckKind() const {
    const bool is_known = compression_ == kPlain ? bits_ == 1 || bits_ == 4 || bits_ == 8 ||
                                                       bits_ == 16 || bits_ == 24 || bits_ == 32
                          : compression_ == kBitFields ? bits_ == 16 || bits_ == 32
                          : compression_ == kRle8      ? bits_ == 8
                          : compression_ == kRle4      ? bits_ == 4
                                                       : false;
    if (is_known) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("unsupported BMP: ", bits_, " bits a pixel with compression ", compression_));
  }

  absl::Status ReadPalette(uint64_t info) {
    const size_t entry = info == kOldInfo ? 3 : 4;
    uint64_t count = info == kOldInfo ? 0 : LittleEndian(bytes_, 46, 4);
    if (count > 256) return DamagedImage("BMP", "a palette of more than 256 colours");
    if (count == 0) count = 1 << bits_;
    const uint64_t at = kFileHeader + info;
    if (count * entry > bytes_.size() - at) return Cut();
    for (uint64_t i = 0; i < count; ++i) {
      for (int c = 0; c < 3; ++c)
        palette_[i].rgb[c] = std::to_integer<uint8_t>(bytes_[at + i * entry + (2 - c)]);
    }
    return absl::OkStatus();
  }

  // Which bits of a pixel are red, green and blue.
  absl::Status ReadMasks(uint64_t info) {
    masks_[0] = bits_ == 16 ? 0x7C00 : 0xFF0000;
    masks_[1] = bits_ == 16 ? 0x03E0 : 0x00FF00;
    masks_[2] = bits_ == 16 ? 0x001F : 0x0000FF;
    if (compression_ == kBitFields) {
      constexpr size_t kMasksAt = kFileHeader + 40;  // in the info header, or right behind it
      if (info < 40 || bytes_.size() < kMasksAt + 12) return Cut();
      for (int c = 0; c < 3; ++c)
        masks_[c] = static_cast<uint32_t>(LittleEndian(bytes_, kMasksAt + 4 * c, 4));
    }
    for (int c = 0; c < 3; ++c) {
      const uint32_t mask = masks_[c];
      const int low = mask == 0 ? 0 : __builtin_ctz(mask);
      const uint32_t width = mask >> low;
      // One run of 5, 6 or 8 bits.
      const bool is_known = bits_ == 32 ? width == 0xFF : width == 0x1F || width == 0x3F;
      if (!is_known || (bits_ == 16 && mask > 0xFFFF))
        return absl::InvalidArgumentError("unsupported BMP: colours in unusual bits of a pixel");
      shifts_[c] = low;
      lifts_[c] = width == 0xFF ? 0 : width == 0x3F ? 2 : 3;
    }
    return absl::OkStatus();
  }

  void WritePixel(const uint8_t* row, int x, uint8_t* out) const {
    switch (bits_) {
      case 1:
        return Write(row[x >> 3] >> (7 - (x & 7)) & 1, out);
      case 4:
        return Write(row[x >> 1] >> (x & 1 ? 0 : 4) & 15, out);
      case 8:
        return Write(row[x], out);
      case 24:
        for (int c = 0; c < 3; ++c) out[c] = row[x * 3 + 2 - c];
        return;
      default: {
        uint32_t pixel = 0;
        for (int i = bits_ / 8 - 1; i >= 0; --i) pixel = pixel << 8 | row[x * (bits_ / 8) + i];
        for (int c = 0; c < 3; ++c)
          out[c] = static_cast<uint8_t>((pixel & masks_[c]) >> shifts_[c] << lifts_[c]);
      }
    }
  }
  void Write(int index, uint8_t* out) const { std::memcpy(out, palette_[index].rgb, 3); }

  // RLE4 and RLE8. What no run covers is the palette's first colour.
  absl::Status DecodeRuns(uint8_t* rgb) {
    for (int64_t i = 0; i < static_cast<int64_t>(size_.width) * size_.height; ++i)
      Write(0, rgb + i * 3);
    const Bytes code = bytes_.subspan(pixels_at_);
    size_t at = 0;
    int x = 0, y = 0;
    const auto byte = [&](size_t i) { return std::to_integer<int>(code[i]); };
    const auto out = [&] { return rgb + (static_cast<size_t>(Row(y)) * size_.width + x) * 3; };
    while (y < size_.height) {
      if ((at & 0xFFE) == 0 && clock_.IsOver()) return clock_.Over("BMP");
      if (code.size() - at < 2) return Cut();
      const int count = byte(at), value = byte(at + 1);
      at += 2;
      if (x == size_.width && (count > 0 || value > 2)) {  // a full row needs no end
        x = 0;
        if (++y == size_.height) break;
      }
      if (count > 0) {  // one colour, or two in turn, `count` times
        if (count > size_.width - x) return Outside();
        for (int i = 0; i < count; ++i, ++x) Write(Index(value, i), out());
      } else if (value > 2) {  // `value` pixels as they are, padded to two bytes
        const size_t bytes = compression_ == kRle8 ? value : (value + 1) / 2;
        if (bytes + (bytes & 1) > code.size() - at) return Cut();
        if (value > size_.width - x) return Outside();
        for (int i = 0; i < value; ++i, ++x)
          Write(compression_ == kRle8 ? byte(at + i) : Index(byte(at + i / 2), i), out());
        at += bytes + (bytes & 1);
      } else if (value == 2) {  // go right and on
        if (code.size() - at < 2) return Cut();
        x += byte(at);
        y += byte(at + 1);
        at += 2;
        if (x > size_.width || y > size_.height) return Outside();
      } else if (value == 1) {  // the end
        break;
      } else {  // the next row
        x = 0;
        ++y;
      }
    }
    return absl::OkStatus();
  }
  int Index(int value, int i) const {
    return compression_ == kRle8 ? value : i & 1 ? value & 15 : value >> 4;
  }
  static absl::Status Outside() { return DamagedImage("BMP", "a run leaves the image"); }

  Bytes bytes_;
  DecodeClock clock_;
  Size size_;
  uint64_t pixels_at_ = 0;
  uint64_t stride_ = 0;  // of a row in the file, without runs
  int bits_ = 0;
  uint32_t compression_ = kPlain;
  bool top_down_ = false;
  Colour palette_[256];
  uint32_t masks_[3] = {};
  int shifts_[3] = {}, lifts_[3] = {};  // of 5 and 6 bits, the lower ones become 0
};

}  // namespace

bool IsBmp(Bytes encoded) { return StartsWith(encoded, "BM"); }
std::unique_ptr<WholeDecoder> NewBmpDecoder() { return std::make_unique<BmpDecoder>(); }

}  // namespace feedwater::server
