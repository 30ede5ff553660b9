#include "server/codec/whole/pnm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "server/base/status.h"

namespace feedwater::server {
namespace {

using Bytes = absl::Span<const std::byte>;

constexpr int kMaxMaximum = 65535;

// P1 P4 bits, P2 P5 gray, P3 P6 colour; the first of each is text.
class PnmDecoder final : public WholeDecoder {
 public:
  absl::StatusOr<WholeHeader> Open(Bytes encoded, const ImageLimits& limits) override {
    clock_.Start(limits);
    bytes_ = encoded;
    const int kind = Here(1) - '0';
    is_text_ = kind <= 3;
    is_bitmap_ = kind == 1 || kind == 4;
    channels_ = kind == 3 || kind == 6 ? 3 : 1;
    at_ = 2;
    FW_ASSIGN_OR_RETURN(const int width, Number("no size"));
    FW_ASSIGN_OR_RETURN(const int height, Number("no size"));
    WholeHeader header;
    FW_ASSIGN_OR_RETURN(header.size, CheckedSize("PNM", width, height, limits));
    size_ = header.size;
    if (!is_bitmap_) {
      FW_ASSIGN_OR_RETURN(maximum_, Number("no largest value"));
      if (maximum_ < 1 || maximum_ > kMaxMaximum)
        return DamagedImage("PNM", "a largest value outside of 1 to 65535");
    }
    ++at_;  // one blank ends the header
    samples_ = static_cast<uint64_t>(size_.width) * channels_;
    row_bytes_ = is_bitmap_ ? (samples_ + 7) / 8 : samples_ * (maximum_ > 255 ? 2 : 1);
    if (!is_text_ && (at_ > bytes_.size() || row_bytes_ * size_.height > bytes_.size() - at_))
      return DamagedImage("PNM", "the file is cut");
    return header;
  }

  absl::Status Decode(uint8_t* rgb) override {
    MakeTable();
    for (int y = 0; y < size_.height; ++y, rgb += static_cast<size_t>(size_.width) * 3) {
      if (clock_.IsOver()) return clock_.Over("PNM");
      for (uint64_t i = 0; i < samples_; ++i) {
        int value;
        if (is_text_) {
          FW_ASSIGN_OR_RETURN(value, is_bitmap_ ? Bit() : Number("no sample"));
        } else if (is_bitmap_) {
          value = Here(at_ + i / 8) >> (7 - i % 8) & 1;
        } else if (maximum_ > 255) {
          value = Here(at_ + 2 * i) << 8 | Here(at_ + 2 * i + 1);
        } else {
          value = Here(at_ + i);
        }
        const uint8_t byte = table_[std::min(value, maximum_)];
        if (channels_ == 3) {
          rgb[i] = byte;
        } else {
          std::fill_n(rgb + i * 3, 3, byte);
        }
      }
      if (!is_text_) at_ += row_bytes_;
    }
    return absl::OkStatus();
  }

 private:
  int Here(size_t at) const { return at < bytes_.size() ? std::to_integer<int>(bytes_[at]) : -1; }

  // Passes over blanks, and comments from '#' to the end of the line.
  void SkipBlanks() {
    for (;; ++at_) {
      if (Here(at_) == '#') {
        while (Here(at_) != '\n' && Here(at_) != '\r' && Here(at_) != -1) ++at_;
      }
      if (Here(at_) != ' ' && (Here(at_) < '\t' || Here(at_) > '\r')) return;
    }
  }

  absl::StatusOr<int> Number(const char* missing) {
    SkipBlanks();
    if (Here(at_) < '0' || Here(at_) > '9') return DamagedImage("PNM", missing);
    int64_t number = 0;
    for (; Here(at_) >= '0' && Here(at_) <= '9'; ++at_) {
      number = number * 10 + (Here(at_) - '0');
      if (number > 0x7FFFFFFF) return DamagedImage("PNM", "an impossible number");
    }
    return static_cast<int>(number);
  }

  // Bits of a text need no blanks between them.
  absl::StatusOr<int> Bit() {
    SkipBlanks();
    if (Here(at_) != '0' && Here(at_) != '1') return DamagedImage("PNM", "no sample");
    return Here(at_++) - '0';
  }

  // What each value becomes: bits are ink, so 1 is black. Others are spread over 8 bits, or over
  // 16 of which the high byte stays.
  void MakeTable() {
    table_.resize(static_cast<size_t>(maximum_) + 1);
    const double full = maximum_ > 255 ? 65535 : 255;
    for (int i = 0; i <= maximum_; ++i) {
      const int value = static_cast<int>(std::nearbyint(static_cast<double>(i) / maximum_ * full));
      table_[i] = static_cast<uint8_t>(is_bitmap_       ? 255 - value
                                       : maximum_ > 255 ? value >> 8
                                                        : value);
    }
  }

  Bytes bytes_;
  DecodeClock clock_;
  size_t at_ = 0;
  bool is_text_ = false, is_bitmap_ = false;
  int channels_ = 1, maximum_ = 1;
  uint64_t samples_ = 0, row_bytes_ = 0;  // of a row; bytes unless it is text
  Size size_;
  std::vector<uint8_t> table_;
};

}  // namespace

bool IsPnm(Bytes encoded) {
  if (encoded.size() < 3 || !StartsWith(encoded, "P")) return false;
  const int kind = std::to_integer<int>(encoded[1]), blank = std::to_integer<int>(encoded[2]);
  return kind >= '1' && kind <= '6' &&
         (blank == ' ' || (blank >= '\t' && blank <= '\r') || blank == '#');
}
std::unique_ptr<WholeDecoder> NewPnmDecoder() { return std::make_unique<PnmDecoder>(); }

}  // namespace feedwater::server
