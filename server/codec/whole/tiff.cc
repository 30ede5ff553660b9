#include "server/codec/whole/tiff.h"

#include <tiffio.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

using Bytes = absl::Span<const std::byte>;

constexpr int kMostBytesAPixel = 8;       // in the file: four samples of 16 bits
constexpr int64_t kBandPixels = 1 << 18;  // decoded at a time, where strips are smaller

// Compressions whose decoders are small and well tried, and allocate little.
constexpr int kCompressions[] = {
    COMPRESSION_NONE, COMPRESSION_CCITTRLE,     COMPRESSION_CCITTRLEW, COMPRESSION_CCITTFAX3,
    COMPRESSION_LZW,  COMPRESSION_CCITTFAX4,    COMPRESSION_PACKBITS,  COMPRESSION_DEFLATE,
    COMPRESSION_JPEG, COMPRESSION_ADOBE_DEFLATE};

// The file in memory, as libtiff asks for it, and what libtiff says.
class TiffFile {
 public:
  ~TiffFile() { Close(); }

  // Opens the first image. No single allocation of libtiff's is larger than `most_bytes`.
  bool Open(Bytes bytes, int64_t most_bytes) {
    Close();
    bytes_ = bytes;
    at_ = 0;
    message_[0] = '\0';
    TIFFOpenOptions* options = TIFFOpenOptionsAlloc();
    if (options == nullptr) return false;
    const absl::Cleanup freed = [options] { TIFFOpenOptionsFree(options); };
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, most_bytes);
    TIFFOpenOptionsSetErrorHandlerExtR(options, OnError, this);
    TIFFOpenOptionsSetWarningHandlerExtR(options, OnWarning, this);
    tiff_ = TIFFClientOpenExt("image", "r", this, OnRead, OnWrite, OnSeek, OnClose, OnSize, OnMap,
                              OnUnmap, options);
    return tiff_ != nullptr;
  }
  void Close() {
    if (tiff_ != nullptr) TIFFClose(tiff_);
    tiff_ = nullptr;
  }

  TIFF* get() const { return tiff_; }
  // What went wrong first.
  absl::string_view message() const {
    return message_[0] == '\0' ? "libtiff cannot read it" : message_;
  }

 private:
  static TiffFile& Of(thandle_t handle) { return *static_cast<TiffFile*>(handle); }

  static int OnError(TIFF*, void* self, const char*, const char* format, va_list values) {
    char* message = Of(self).message_;
    if (message[0] == '\0') std::vsnprintf(message, sizeof(message_), format, values);
    return 1;  // goes nowhere else
  }
  static int OnWarning(TIFF*, void*, const char*, const char*, va_list) { return 1; }

  static tmsize_t OnRead(thandle_t handle, void* out, tmsize_t length) {
    TiffFile& self = Of(handle);
    const uint64_t left = self.at_ < self.bytes_.size() ? self.bytes_.size() - self.at_ : 0;
    const size_t count = std::min<uint64_t>(left, length);
    if (count > 0) std::memcpy(out, self.bytes_.data() + self.at_, count);
    self.at_ += count;
    return static_cast<tmsize_t>(count);
  }
  static tmsize_t OnWrite(thandle_t, void*, tmsize_t) { return 0; }
  static toff_t OnSeek(thandle_t handle, toff_t offset, int whence) {
    TiffFile& self = Of(handle);
    const uint64_t from = whence == SEEK_CUR   ? self.at_
                          : whence == SEEK_END ? self.bytes_.size()
                                               : 0;
    return self.at_ = from + offset;
  }
  static int OnClose(thandle_t) { return 0; }
  static toff_t OnSize(thandle_t handle) { return Of(handle).bytes_.size(); }
  // With this libtiff reads strips where they lie, and copies none.
  static int OnMap(thandle_t handle, void** base, toff_t* size) {
    TiffFile& self = Of(handle);
    *base = const_cast<std::byte*>(self.bytes_.data());
    *size = self.bytes_.size();
    return 1;
  }
  static void OnUnmap(thandle_t, void*, toff_t) {}

  Bytes bytes_;
  uint64_t at_ = 0;
  TIFF* tiff_ = nullptr;
  char message_[256] = {};
};

class TiffDecoder final : public WholeDecoder {
 public:
  absl::StatusOr<WholeHeader> Open(Bytes encoded, const ImageLimits& limits) override {
    clock_.Start(limits);
    bytes_ = encoded;
    // Of the directory and its lists, which are in the file: 2 bytes there are 8 here at most.
    errno = 0;
    if (!file_.Open(bytes_, DirectoryBytes())) return Damaged();
    TIFF* tiff = file_.get();
    uint32_t width = 0, height = 0;
    TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width);
    TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height);
    WholeHeader header;
    FW_ASSIGN_OR_RETURN(header.size, CheckedSize("TIFF", width, height, limits));
    size_ = header.size;
    FW_RETURN_IF_ERROR(CheckKind());
    uint16_t orientation = 1;
    TIFFGetFieldDefaulted(tiff, TIFFTAG_ORIENTATION, &orientation);
    if (orientation >= 1 && orientation <= 8) header.orientation = orientation;
    header.is_turned_always = true;
    return header;
  }

  absl::Status Decode(uint8_t* rgb) override {
    // Again, with room for a strip or tile, which CheckKind has bounded by the image.
    const int64_t strip = static_cast<int64_t>(block_width_) * block_height_ * kMostBytesAPixel;
    errno = 0;
    if (!file_.Open(bytes_, std::max(DirectoryBytes(), strip + (1 << 16)))) return Damaged();
    char why[1024] = "";
    TIFFRGBAImage image;
    constexpr int kStopOnError = 1;
    if (!TIFFRGBAImageOK(file_.get(), why) ||
        !TIFFRGBAImageBegin(&image, file_.get(), kStopOnError, why)) {
      if (errno == ENOMEM) return Damaged();
      return absl::InvalidArgumentError(absl::StrCat("unsupported TIFF: ", why));
    }
    const absl::Cleanup ended = [&image] { TIFFRGBAImageEnd(&image); };
    // As stored; the caller turns it.
    image.orientation = image.req_orientation = ORIENTATION_TOPLEFT;
    int rows = block_height_;  // whole strips or rows of tiles
    if (!TIFFIsTiled(file_.get()))
      rows *= static_cast<int>(
          std::max<int64_t>(1, kBandPixels / (static_cast<int64_t>(block_width_) * block_height_)));
    rows = std::min(rows, size_.height);
    std::vector<uint32_t> raster(static_cast<size_t>(size_.width) * rows);
    for (int y = 0; y < size_.height; y += rows) {
      if (clock_.IsOver()) return clock_.Over("TIFF");
      const int count = std::min(rows, size_.height - y);
      image.row_offset = y;
      if (!TIFFRGBAImageGet(&image, raster.data(), size_.width, count)) return Damaged();
      const size_t pixels = static_cast<size_t>(size_.width) * count;
      for (size_t i = 0; i < pixels; ++i, rgb += 3) {
        rgb[0] = TIFFGetR(raster[i]);
        rgb[1] = TIFFGetG(raster[i]);
        rgb[2] = TIFFGetB(raster[i]);
      }
    }
    return absl::OkStatus();
  }

 private:
  int64_t DirectoryBytes() const { return 4 * static_cast<int64_t>(bytes_.size()) + (1 << 20); }
  // libtiff says the same of memory that is short and of an image that asks for more than it may;
  // only the first comes from malloc.
  absl::Status Damaged() const {
    if (errno == ENOMEM) return absl::ResourceExhaustedError("TIFF: out of memory");
    return DamagedImage("TIFF", file_.message());
  }

  absl::Status CheckKind() {
    TIFF* tiff = file_.get();
    uint16_t bits = 1, samples = 1, compression = COMPRESSION_NONE;
    TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &bits);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &samples);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &compression);
    if (std::find(std::begin(kCompressions), std::end(kCompressions), compression) ==
        std::end(kCompressions)) {
      return absl::InvalidArgumentError(absl::StrCat("unsupported TIFF: compression ", compression,
                                                     "; write it with LZW or deflate"));
    }
    if (static_cast<int>(bits) * samples > 8 * kMostBytesAPixel) {
      return absl::InvalidArgumentError(
          absl::StrCat("unsupported TIFF: ", samples, " samples of ", bits, " bits a pixel"));
    }
    uint32_t width = size_.width, height = size_.height;
    if (TIFFIsTiled(tiff)) {
      // An image smaller than one tile is usual, one much smaller is not.
      constexpr uint32_t kTileStep = 1024;
      TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &width);
      TIFFGetField(tiff, TIFFTAG_TILELENGTH, &height);
      if (width == 0 || height == 0 || width > size_.width + kTileStep ||
          height > size_.height + kTileStep)
        return DamagedImage("TIFF", "tiles much larger than the image");
    } else {
      TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &height);
      height = std::clamp<uint32_t>(height, 1, size_.height);
    }
    block_width_ = static_cast<int>(width);
    block_height_ = static_cast<int>(height);
    return absl::OkStatus();
  }

  Bytes bytes_;
  DecodeClock clock_;
  TiffFile file_;
  Size size_;
  int block_width_ = 0, block_height_ = 0;  // of a strip or tile
};

}  // namespace

bool IsTiff(Bytes encoded) {
  return StartsWith(encoded, absl::string_view("II*\0", 4)) ||
         StartsWith(encoded, absl::string_view("MM\0*", 4));
}
std::unique_ptr<WholeDecoder> NewTiffDecoder() { return std::make_unique<TiffDecoder>(); }

}  // namespace feedwater::server
