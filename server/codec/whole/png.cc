#include "server/codec/whole/png.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/codec/jpeg/markers.h"

namespace feedwater::server {
namespace {

using Bytes = absl::Span<const std::byte>;

// libpng ends in a longjmp, so functions that call it have no locals with destructors; what has
// them lives here.
class PngDecoder final : public WholeDecoder {
 public:
  ~PngDecoder() override {
    if (png_ != nullptr) png_destroy_read_struct(&png_, &info_, nullptr);
  }

  absl::StatusOr<WholeHeader> Open(Bytes encoded, const ImageLimits& limits) override {
    clock_.Start(limits);
    bytes_ = encoded;
    constexpr size_t kSignature = 8, kHeader = 25;
    if (bytes_.size() < kSignature + kHeader || BigEndian(bytes_, kSignature, 4) != 13 ||
        !StartsWith(bytes_, "IHDR", kSignature + 4))
      return DamagedImage("PNG", "no header");
    WholeHeader header;
    FW_ASSIGN_OR_RETURN(header.size, CheckedSize("PNG", BigEndian(bytes_, kSignature + 8, 4),
                                                 BigEndian(bytes_, kSignature + 12, 4), limits));
    size_ = header.size;
    header.orientation = Orientation();
    depth_ = static_cast<int>(BigEndian(bytes_, kSignature + 16, 1));
    kind_ = static_cast<int>(BigEndian(bytes_, kSignature + 17, 1));
    header.has_indices =
        depth_ <= 8 && (kind_ == PNG_COLOR_TYPE_PALETTE || kind_ == PNG_COLOR_TYPE_GRAY);
    return header;
  }

  absl::Status Decode(uint8_t* rgb) override { return DecodeAs(PixelValues::kRgb, rgb); }
  absl::Status DecodeIndices(uint8_t* indices) override {
    return DecodeAs(PixelValues::kIndices, indices);
  }

  std::string Kind() const override {
    const char* const colours = (kind_ & PNG_COLOR_MASK_PALETTE) != 0 ? "palette"
                                : (kind_ & PNG_COLOR_MASK_COLOR) != 0 ? "RGB"
                                : (kind_ & PNG_COLOR_MASK_ALPHA) != 0 ? "gray and alpha"
                                                                      : "gray";
    return absl::StrCat(colours, " PNG of ", depth_, " bits");
  }

 private:
  absl::Status DecodeAs(PixelValues values, uint8_t* pixels) {
    if (!ReadHeader()) return Failed();
    if (png_get_image_width(png_, info_) != static_cast<uint32_t>(size_.width) ||
        png_get_image_height(png_, info_) != static_cast<uint32_t>(size_.height))
      return TwoSizes("PNG");
    return ReadPixels(values, pixels) || IsWholeAtError() ? absl::OkStatus() : Failed();
  }

  static PngDecoder& Of(png_voidp pointer) { return *static_cast<PngDecoder*>(pointer); }

  using Text = char[128];
  static void Keep(const char* message, Text& text) {
    const size_t length = std::min(std::strlen(message), sizeof(text) - 1);
    std::memcpy(text, message, length);
    text[length] = '\0';
  }
  [[noreturn]] static void OnError(png_structp png, png_const_charp message) {
    PngDecoder& self = Of(png_get_error_ptr(png));
    Keep(message, self.message_);
    std::longjmp(self.jump_, 1);
  }
  // Dropped, but for the last one before an error, which often says more.
  static void OnWarning(png_structp png, png_const_charp message) {
    Keep(message, Of(png_get_error_ptr(png)).warning_);
  }

  static void OnRead(png_structp png, png_bytep out, size_t length) {
    PngDecoder& self = Of(png_get_io_ptr(png));
    if (length > self.bytes_.size() - self.at_) {
      self.is_cut_ = true;
      png_error(png, "the file is cut");
    }
    // What stands behind the last row is inflated, too, and may be much.
    if (self.clock_.IsOver()) {
      self.too_slow_ = true;
      png_error(png, "too slow");
    }
    std::memcpy(out, self.bytes_.data() + self.at_, length);
    self.at_ += length;
  }

  // Everything that libpng and zlib allocate. A block's length stands before it.
  static constexpr size_t kBlockHeader = alignof(std::max_align_t);
  static png_voidp OnAllocate(png_structp png, size_t bytes) {
    PngDecoder& self = Of(png_get_mem_ptr(png));
    if (bytes > static_cast<size_t>(kMostDecoderBytes) - self.allocated_) return nullptr;
    auto* block = static_cast<std::byte*>(std::malloc(bytes + kBlockHeader));
    if (block == nullptr) {
      self.no_memory_ = true;
      return nullptr;
    }
    std::memcpy(block, &bytes, sizeof(bytes));
    self.allocated_ += bytes;
    return block + kBlockHeader;
  }
  static void OnFree(png_structp png, png_voidp pointer) {
    if (pointer == nullptr) return;
    std::byte* block = static_cast<std::byte*>(pointer) - kBlockHeader;
    size_t bytes;
    std::memcpy(&bytes, block, sizeof(bytes));
    Of(png_get_mem_ptr(png)).allocated_ -= bytes;
    std::free(block);
  }

  bool ReadHeader() {
    if (setjmp(jump_) != 0) return false;
    png_ = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, this, OnError, OnWarning, this,
                                    OnAllocate, OnFree);
    if (png_ == nullptr) return false;
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return false;
    png_set_read_fn(png_, this, OnRead);
    // Some encoders name a smaller window than they use.
    png_set_option(png_, PNG_MAXIMUM_INFLATE_WINDOW, PNG_OPTION_ON);
    png_set_user_limits(png_, kMaxWholeSide, kMaxWholeSide);
    // Left out: all chunks but those that pixels need.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(png_, info_);
    return true;
  }

  bool ReadPixels(PixelValues values, uint8_t* pixels) {
    if (setjmp(jump_) != 0) return false;
    const int kind = png_get_color_type(png_, info_);
    if (values == PixelValues::kIndices) {
      png_set_packing(png_);  // a byte for each, not spread over 8 bits
    } else {
      png_set_strip_16(png_);
      png_set_strip_alpha(png_);
      png_set_palette_to_rgb(png_);
      if ((kind & PNG_COLOR_MASK_COLOR) == 0) {
        png_set_expand_gray_1_2_4_to_8(png_);
        png_set_gray_to_rgb(png_);
      }
    }
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const size_t row_bytes = static_cast<size_t>(size_.width) * ChannelsOf(values);
    if (png_get_rowbytes(png_, info_) != row_bytes) png_error(png_, "rows of an odd length");
    for (int pass = 0; pass < passes; ++pass) {
      for (int y = 0; y < size_.height; ++y) {
        if (clock_.IsOver()) {
          too_slow_ = true;
          return false;
        }
        png_read_row(png_, pixels + y * row_bytes, nullptr);
      }
    }
    png_read_end(png_, nullptr);
    return true;
  }

  // All rows had come before the error, and no checksum of theirs is wrong: the file is cut behind
  // them, lacks its last chunk, or has something else there.
  bool IsWholeAtError() const {
    constexpr uint32_t kPixelChunk = 0x49444154, kPassesOfAdam7 = 7;  // IDAT
    const bool has_all_rows =
        png_get_current_row_number(png_) == static_cast<uint32_t>(size_.height) ||
        png_get_current_pass_number(png_) == kPassesOfAdam7;
    const bool is_between_chunks = (png_get_io_state(png_) & PNG_IO_CHUNK_HDR) != 0;
    const bool is_damaged =
        !is_cut_ && !is_between_chunks && png_get_io_chunk_type(png_) == kPixelChunk;
    return has_all_rows && !is_damaged && !too_slow_ && !no_memory_;
  }

  // eXIf may stand anywhere before or after the pixels; chunks are only hopped over.
  int Orientation() const {
    for (uint64_t at = 8; bytes_.size() - at >= 12;) {
      const uint64_t length = BigEndian(bytes_, at, 4);
      if (length > bytes_.size() - at - 12) break;
      if (StartsWith(bytes_, "eXIf", at + 4))
        return ReadExifOrientation(bytes_.subspan(at + 8, length));
      at += 12 + length;
    }
    return 1;
  }

  absl::Status Failed() const {
    if (too_slow_) return clock_.Over("PNG");
    if (no_memory_ || message_[0] == '\0')
      return absl::ResourceExhaustedError("PNG: out of memory");
    return DamagedImage(
        "PNG", warning_[0] == '\0' ? message_ : absl::StrCat(message_, " (", warning_, ")"));
  }

  Bytes bytes_;
  size_t at_ = 0;
  Size size_;
  int depth_ = 0, kind_ = 0;  // as IHDR has them
  DecodeClock clock_;
  bool is_cut_ = false, too_slow_ = false, no_memory_ = false;
  size_t allocated_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_;
  Text message_ = {}, warning_ = {};
};

}  // namespace

bool IsPng(Bytes encoded) { return StartsWith(encoded, "\x89PNG\r\n\x1A\n"); }
std::unique_ptr<WholeDecoder> NewPngDecoder() { return std::make_unique<PngDecoder>(); }

}  // namespace feedwater::server
