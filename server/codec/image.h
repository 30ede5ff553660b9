// Compressed bytes to pixels, and pixels to pixels. Everything here is a pure function of its
// arguments; nothing does I/O, takes a lock or starts a thread. All buffers and decoder state live
// in an ImageWorkspace that one thread reuses, so that no call allocates once warm. Input bytes are
// hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/codec/jpeg/frame.h"  // Uncovered
#include "server/codec/row_source.h"  // Size, Rect, ImageLimits
#include "server/codec/seek_indexes.h"

namespace feedwater::server {

class RowEdit;
class WorkClock;

enum class Interpolation {
  kNearest,
  kBilinear,
  kBicubic,
  kOpenCvLinear
};  // bilinear and bicubic are antialiased, as Pillow's

// What the header says. `size` is as the pixels will come out (after EXIF orientation where that is
// applied).
struct ImageInfo {
  std::string format;  // "jpeg", "png", "bmp", "webp", ... found by content, never by name
  Size size;
  int orientation = 1;  // EXIF 1..8
};

// The geometry of one output image, composed from crops, at most one resize, and flips: take `crop`
// of the decoded image, resample it to `scaled` (no resampling when equal to the crop's size), take
// `window` of that, then mirror.
struct Geometry {
  Rect crop;
  Size scaled;
  Rect window;  // within `scaled`; its size is the output's
  bool flip_horizontal = false, flip_vertical = false;
  Interpolation interpolation = Interpolation::kBilinear;
  // Lets a JPEG be decoded at 1/2, 1/4 or 1/8 of its size where the crop is at least that many
  // times as large as `scaled`, before the rest of the way is resampled: faster, other pixels
  // (README.md). Nothing changes for other images, and for interpolation that is not antialiased.
  bool fast_scale = false;
};

// How finished pixels are stored.
enum class PixelType : uint8_t { kUInt8, kFloat16, kBFloat16, kFloat32 };
struct PixelFormat {
  PixelType type = PixelType::kUInt8;
  bool planar = false;  // CHW instead of HWC
  bool affine = false;  // (value - mean[c]) * (1 / std[c]) in float32, then rounded to `type`; else
                        // the uint8 value itself
  float mean[4] = {0, 0, 0, 0};
  float inverse_std[4] = {1, 1, 1, 1};
  bool stream = false;  // past the caches, where that is possible: for memory that nothing of this
                        // process reads. Does not change a byte.
  RowEdit* edit = nullptr;  // what is done to the uint8 pixels first (row_edit.h)
};

// JPEGs by the way they were decoded (README.md, "Levels"), and why libjpeg-turbo had to.
struct DecodeCounts {
  uint64_t from_coefficients = 0, own_decoder = 0;
  uint64_t with_seek_index = 0;  // those of own_decoder for which an index was known
  uint64_t libjpeg[jpeg::kUncoveredKinds] = {};  // by jpeg::Uncovered

  // Adds what came from `before` to `now`.
  void AddSince(const DecodeCounts& before, const DecodeCounts& now) {
    from_coefficients += now.from_coefficients - before.from_coefficients;
    own_decoder += now.own_decoder - before.own_decoder;
    with_seek_index += now.with_seek_index - before.with_seek_index;
    for (int i = 0; i < jpeg::kUncoveredKinds; ++i)
      libjpeg[i] += now.libjpeg[i] - before.libjpeg[i];
  }
};

class ImageWorkspace {  // one per worker thread
 public:
  ImageWorkspace();
  ~ImageWorkspace();
  ImageWorkspace(ImageWorkspace&&) noexcept;
  struct Impl;
  Impl* impl() { return impl_.get(); }

  // Images decoded so far, by the way that was taken.
  const DecodeCounts& counts() const;
  // For comparisons and tests: false leaves every JPEG to libjpeg-turbo.
  void UseOwnDecoder(bool use);
  // Where seek indexes are found and kept from now on; null: nowhere. `indexes` must live as long
  // as it is used.
  void UseSeekIndexes(SeekIndexes* indexes);
  // What is looked at between rows; null: nothing is.
  void UseClock(WorkClock* clock);
  // Frees what images have left behind for the next one.
  void GiveBack();

 private:
  std::unique_ptr<Impl> impl_;
};

// Reads the header only. InvalidArgument with the reason: unknown format, damaged header, over a
// limit, of another kind than `values` need.
absl::StatusOr<ImageInfo> ReadImageInfo(absl::Span<const std::byte> encoded, bool apply_orientation,
                                        const ImageLimits& limits, ImageWorkspace& workspace,
                                        PixelValues values = PixelValues::kRgb);

// The JPEG as a coefficient document (jpeg/coefficient_store.h): an image file like any other, of
// the same pixels, that DecodeInto decodes several times faster. Empty for images that are none,
// that are damaged, or that documents do not cover (jpeg/libjpeg_packer.h); valid until the next
// call with this workspace. NeedOfPacking (decode_need.h) says what it takes.
absl::Span<const std::byte> PackCoefficients(absl::Span<const std::byte> encoded,
                                             const ImageLimits& limits, ImageWorkspace& workspace);
// Of the documents that PackCoefficients makes and DecodeInto reads, and of no others.
uint32_t CoefficientsVersion();
bool IsCoefficients(absl::Span<const std::byte> encoded);  // by the first bytes
// Whether an image that comes from outside the process is as it was written, where it says so: a
// coefficient document has a checksum, which decoding does not look at. DataLoss: it is not.
absl::Status VerifyImage(absl::Span<const std::byte> encoded);

// Puts the JPEG's whole seek index where UseSeekIndexes said. False for images that are none, or
// that only libjpeg-turbo decodes.
bool MakeSeekIndex(absl::Span<const std::byte> encoded, const ImageLimits& limits,
                   ImageWorkspace& workspace);

// Decodes only what `geometry` needs and writes geometry.window's pixels (3 channels RGB, or one of
// indices) at `out`, densely packed. The same bytes as decoding the whole image, cropping,
// resampling, mirroring and converting one after the other, unless geometry.fast_scale allows
// others. `encoded` is followed by kReadPadding readable bytes (storage/engine.h). `out` has
// window.width * window.height * ChannelsOf(values) elements.
absl::Status DecodeInto(absl::Span<const std::byte> encoded, bool apply_orientation,
                        const ImageLimits& limits, const Geometry& geometry,
                        const PixelFormat& format, std::byte* out, ImageWorkspace& workspace,
                        PixelValues values = PixelValues::kRgb);

// The same for pixels that are already there: uint8 HWC with 1, 3 or 4 channels, `size` large.
absl::Status ResampleInto(const uint8_t* pixels, Size size, int channels, const Geometry& geometry,
                          const PixelFormat& format, std::byte* out, ImageWorkspace& workspace);

// The SIMD target chosen at run time, for logs and status: "AVX3_ZEN4", "AVX2", "NEON", "SCALAR".
std::string SimdTarget();

}  // namespace feedwater::server
