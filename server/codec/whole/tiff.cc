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

constexpr int kMostBytesAPixel = 8;  // in the file: four samples of 16 bits
constexpr int kRasterBytes = sizeof(uint32_t);
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

// The first directory: what our own code knows of it before libtiff sees the file. libtiff keeps
// every list that an entry names, and as often as it is named, so a file may name each of its bytes
// once.
struct Directory {
  uint64_t width = 0, height = 0, orientation = 1;
  uint64_t tile_width = 0, tile_height = 0;  // 0: strips
  uint64_t list_bytes = 0;

  static absl::StatusOr<Directory> Read(Bytes bytes) {
    const bool is_big = StartsWith(bytes, "MM");
    const auto number = [&](uint64_t at, int width) {
      return is_big ? BigEndian(bytes, at, width) : LittleEndian(bytes, at, width);
    };
    constexpr uint64_t kHead = 8, kEntry = 12, kMostEntries = 512, kShared = 64 << 10;
    constexpr uint64_t kBytesOfType[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8};
    if (bytes.size() < kHead) return Cut();
    const uint64_t at = number(4, 4);
    if (at > bytes.size() - 2) return Cut();
    const uint64_t entries = number(at, 2);
    if (entries > kMostEntries) {
      return DamagedImage("TIFF", absl::StrCat("a directory of ", entries, " entries; ",
                                               kMostEntries, " are read at most"));
    }
    if (entries * kEntry > bytes.size() - at - 2) return Cut();
    Directory directory;
    struct Number {
      uint64_t tag;
      uint64_t* value;
      bool is_there = false;
    } numbers[] = {{TIFFTAG_IMAGEWIDTH, &directory.width},
                   {TIFFTAG_IMAGELENGTH, &directory.height},
                   {TIFFTAG_ORIENTATION, &directory.orientation},
                   {TIFFTAG_TILEWIDTH, &directory.tile_width},
                   {TIFFTAG_TILELENGTH, &directory.tile_height}};
    for (uint64_t entry = at + 2; entry < at + 2 + entries * kEntry; entry += kEntry) {
      const uint64_t tag = number(entry, 2), type = number(entry + 2, 2);
      const uint64_t count = number(entry + 4, 4);
      const uint64_t size = type < std::size(kBytesOfType) ? kBytesOfType[type] : 0;
      // One that lies outside the file cannot be read: libtiff leaves it out, or the image.
      const uint64_t list = count * size;  // 2^35 at most
      if (list <= 4 || number(entry + 8, 4) + list <= bytes.size()) directory.list_bytes += list;
      for (Number& wanted : numbers) {
        if (wanted.tag != tag) continue;
        const bool is_number = type == TIFF_BYTE || type == TIFF_SHORT || type == TIFF_LONG;
        if (tag == TIFFTAG_ORIENTATION && (!is_number || count != 1)) continue;
        if (wanted.is_there || !is_number || count != 1) {
          return DamagedImage("TIFF",
                              absl::StrCat("its tag ", tag, " is no number, or appears twice"));
        }
        wanted.is_there = true;
        *wanted.value = number(entry + 8, static_cast<int>(size));
      }
    }
    if (directory.list_bytes > bytes.size() + kShared)
      return DamagedImage("TIFF", "its entries name more bytes than the file has");
    return directory;
  }

 private:
  static absl::Status Cut() { return DamagedImage("TIFF", "the file is cut"); }
};

class TiffDecoder final : public WholeDecoder {
 public:
  absl::StatusOr<WholeHeader> Open(Bytes encoded, const ImageLimits& limits) override {
    clock_.Start(limits);
    bytes_ = encoded;
    FW_ASSIGN_OR_RETURN(const Directory directory, Directory::Read(bytes_));
    WholeHeader header;
    FW_ASSIGN_OR_RETURN(header.size,
                        CheckedSize("TIFF", directory.width, directory.height, limits));
    size_ = header.size;
    if (directory.orientation >= 1 && directory.orientation <= 8)
      header.orientation = static_cast<int>(directory.orientation);
    orientation_ = header.orientation;
    header.is_turned_always = true;
    tile_width_ = directory.tile_width;
    tile_height_ = directory.tile_height;
    const uint64_t pixels =
        static_cast<uint64_t>(size_.width) * static_cast<uint64_t>(size_.height);
    // An image smaller than one tile is usual, one much smaller is not.
    constexpr uint64_t kTileStep = 1024, kTilePixels = 4 << 20;
    if (tile_width_ > size_.width + kTileStep || tile_height_ > size_.height + kTileStep ||
        tile_width_ * tile_height_ > std::max(pixels, kTilePixels))
      return DamagedImage("TIFF", "tiles much larger than the image");
    list_bytes_ = kWidened * static_cast<int64_t>(directory.list_bytes);
    header.more_bytes = list_bytes_;
    if (tile_width_ * tile_height_ > pixels) {
      header.more_bytes += (kMostBytesAPixel + kRasterBytes) *
                           static_cast<int64_t>(tile_width_ * tile_height_ - pixels);
    }
    return header;
  }

  absl::Status Decode(uint8_t* rgb) override {
    errno = 0;
    if (!file_.Open(bytes_, DirectoryBytes())) return Damaged();
    FW_RETURN_IF_ERROR(CheckKind());
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
    // Whole tiles in each row of them: libtiff mixes up the columns of one that is cut.
    const int columns = TIFFIsTiled(file_.get())
                            ? (size_.width + block_width_ - 1) / block_width_ * block_width_
                            : size_.width;
    image.width = static_cast<uint32_t>(columns);
    std::vector<uint32_t> raster(static_cast<size_t>(columns) * rows);
    for (int y = 0; y < size_.height; y += rows) {
      if (clock_.IsOver()) return clock_.Over("TIFF");
      const int count = std::min(rows, size_.height - y);
      image.row_offset = y;
      if (!TIFFRGBAImageGet(&image, raster.data(), columns, count)) return Damaged();
      for (int row = 0; row < count; ++row) {
        const uint32_t* pixels = &raster[static_cast<size_t>(row) * columns];
        for (int x = 0; x < size_.width; ++x, rgb += 3) {
          rgb[0] = TIFFGetR(pixels[x]);
          rgb[1] = TIFFGetG(pixels[x]);
          rgb[2] = TIFFGetB(pixels[x]);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kWidened = 4;  // 2 bytes of a list in the file are 8 in memory at most
  int64_t DirectoryBytes() const { return list_bytes_ + (1 << 20); }
  // libtiff says the same of memory that is short and of an image that asks for more than it may;
  // only the first comes from malloc.
  absl::Status Damaged() const {
    if (errno == ENOMEM) return absl::ResourceExhaustedError("TIFF: out of memory");
    return DamagedImage("TIFF", file_.message());
  }

  absl::Status CheckKind() {
    TIFF* tiff = file_.get();
    uint32_t image_width = 0, image_height = 0;
    uint16_t orientation = 1;
    TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &image_width);
    TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &image_height);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_ORIENTATION, &orientation);
    if (orientation < 1 || orientation > 8) orientation = 1;
    if (image_width != static_cast<uint32_t>(size_.width) ||
        image_height != static_cast<uint32_t>(size_.height) || orientation != orientation_)
      return TwoSizes("TIFF");
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
      TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &width);
      TIFFGetField(tiff, TIFFTAG_TILELENGTH, &height);
      if (width == 0 || height == 0) return DamagedImage("TIFF", "empty tiles");
      if (width != tile_width_ || height != tile_height_) return TwoSizes("TIFF");
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
  int orientation_ = 1;
  uint64_t tile_width_ = 0, tile_height_ = 0;
  int64_t list_bytes_ = 0;
  int block_width_ = 0, block_height_ = 0;  // of a strip or tile
};

}  // namespace

bool IsTiff(Bytes encoded) {
  return StartsWith(encoded, absl::string_view("II*\0", 4)) ||
         StartsWith(encoded, absl::string_view("MM\0*", 4));
}
std::unique_ptr<WholeDecoder> NewTiffDecoder() { return std::make_unique<TiffDecoder>(); }

}  // namespace feedwater::server
