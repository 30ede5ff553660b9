#include "server/codec/image.h"

#include <xxhash.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/work_clock.h"
#include "server/codec/file_header.h"
#include "server/codec/jpeg/baseline_decoder.h"
#include "server/codec/jpeg/coefficient_store.h"
#include "server/codec/jpeg/libjpeg_packer.h"
#include "server/codec/jpeg/round_trip.h"
#include "server/codec/jpeg/store_decoder.h"
#include "server/codec/jpeg/turbo_decoder.h"
#include "server/codec/jpeg_artefacts.h"
#include "server/codec/memory_source.h"
#include "server/codec/opencv_resize.h"
#include "server/codec/orientation.h"
#include "server/codec/plane_kernels.h"
#include "server/codec/resampler.h"

namespace feedwater::server {

struct ImageWorkspace::Impl {
  TurboDecoder turbo;
  jpeg::BaselineDecoder baseline;
  jpeg::StoreDecoder store;
  jpeg::StorePacker packer;
  bool use_own_decoder = true;
  SeekIndexes* seek_indexes = nullptr;
  WorkClock* clock = nullptr;
  std::vector<std::byte> seek_index;  // a document
  bool knew_seek_index = false;       // of the last image
  DecodeCounts counts;
  jpeg::RoundTrip round_trip;
  OpenCvResize resized;
  Resampler resampler;
  std::vector<uint8_t> whole;       // an image that is decoded whole
  std::vector<uint8_t> region;      // decoded pixels where they cannot be streamed
  std::vector<uint8_t> transposed;  // the same, transposed
};

ImageWorkspace::ImageWorkspace() : impl_(std::make_unique<Impl>()) {}
ImageWorkspace::~ImageWorkspace() = default;
ImageWorkspace::ImageWorkspace(ImageWorkspace&&) noexcept = default;
const DecodeCounts& ImageWorkspace::counts() const { return impl_->counts; }
void ImageWorkspace::UseOwnDecoder(bool use) { impl_->use_own_decoder = use; }
void ImageWorkspace::UseSeekIndexes(SeekIndexes* indexes) { impl_->seek_indexes = indexes; }
void ImageWorkspace::UseClock(WorkClock* clock) { impl_->clock = clock; }
void ImageWorkspace::GiveBack() {
  auto fresh = std::make_unique<Impl>();
  fresh->use_own_decoder = impl_->use_own_decoder;
  fresh->seek_indexes = impl_->seek_indexes;
  fresh->clock = impl_->clock;
  fresh->counts = impl_->counts;
  impl_ = std::move(fresh);
}

namespace {

using Impl = ImageWorkspace::Impl;

constexpr int kMaxScaledSide = 1 << 20;
constexpr size_t kKeptBytes =
    4 << 20;  // larger buffers are given back after the image that needed them

// Where pixels come from: a JPEG that is open, or an image in memory.
struct StoredImage {
  Size size;
  int channels = 3;
  RegionDecoder* jpeg = nullptr;
  const uint8_t* pixels = nullptr;
  size_t stride = 0;
};

bool Within(const Rect& rect, Size size) {
  return rect.x >= 0 && rect.y >= 0 && rect.width > 0 && rect.height > 0 &&
         rect.width <= size.width && rect.height <= size.height &&
         rect.x <= size.width - rect.width && rect.y <= size.height - rect.height;
}

std::string Describe(const Rect& r) {
  return absl::StrCat(r.width, "x", r.height, "+", r.x, "+", r.y);
}

absl::Status CheckGeometry(const Geometry& geometry, Size size) {
  if (!Within(geometry.crop, size)) {
    return absl::InvalidArgumentError(absl::StrCat("crop ", Describe(geometry.crop),
                                                   " is not within the image of ", size.width, "x",
                                                   size.height));
  }
  if (geometry.scaled.width > kMaxScaledSide || geometry.scaled.height > kMaxScaledSide) {
    return absl::InvalidArgumentError(
        absl::StrCat("a side of more than ", kMaxScaledSide, " pixels is asked for"));
  }
  if (!Within(geometry.window, geometry.scaled)) {
    return absl::InvalidArgumentError(
        absl::StrCat("window ", Describe(geometry.window), " is not within the scaled ",
                     geometry.scaled.width, "x", geometry.scaled.height));
  }
  return absl::OkStatus();
}

// At what part of its size the image is decoded.
int DecodeScale(const StoredImage& image, const Geometry& geometry) {
  if (!geometry.fast_scale || image.jpeg == nullptr) return 1;
  if (geometry.interpolation != Interpolation::kBilinear &&
      geometry.interpolation != Interpolation::kBicubic)
    return 1;
  for (const int scale : {8, 4, 2}) {
    if (geometry.crop.width / scale >= geometry.scaled.width &&
        geometry.crop.height / scale >= geometry.scaled.height)
      return scale;
  }
  return 1;
}

// Looks at the clock before each band of rows.
class ClockedRows final : public RowSource {
 public:
  ClockedRows(RowSource& source, WorkClock& clock) : source_(source), clock_(clock) {}
  absl::Status Read(int count, const uint8_t** rows) override {
    FW_RETURN_IF_ERROR(clock_.Check());
    return source_.Read(count, rows);
  }

 private:
  RowSource& source_;
  WorkClock& clock_;
};

// Calls run(source) with the rows of `region` of the image at 1 / scale.
template <typename Run>
absl::Status WithRows(const StoredImage& image, const Rect& region, int scale, Run run) {
  if (image.jpeg != nullptr) {
    FW_RETURN_IF_ERROR(image.jpeg->Start(region, scale));
    return run(*image.jpeg);
  }
  MemorySource source(image.pixels, image.stride, image.channels, region);
  return run(source);
}

absl::Status CopyRegion(const StoredImage& image, const Rect& region, int scale,
                        std::vector<uint8_t>& out) {
  const size_t row_bytes = static_cast<size_t>(region.width) * image.channels;
  out.resize(row_bytes * region.height);
  return WithRows(image, region, scale, [&](RowSource& source) -> absl::Status {
    const uint8_t* rows[RowSource::kMaxRows];
    for (int y = 0; y < region.height; y += RowSource::kMaxRows) {
      const int count = std::min(RowSource::kMaxRows, region.height - y);
      FW_RETURN_IF_ERROR(source.Read(count, rows));
      for (int i = 0; i < count; ++i)
        std::copy_n(rows[i], row_bytes, out.data() + (y + i) * row_bytes);
    }
    return absl::OkStatus();
  });
}

// `in` has `size` pixels; in blocks, so that neither side strides through the whole cache.
void Transpose(const uint8_t* in, Size size, int channels, uint8_t* out) {
  constexpr int kBlock = 32;
  for (int y0 = 0; y0 < size.height; y0 += kBlock) {
    for (int x0 = 0; x0 < size.width; x0 += kBlock) {
      const int y1 = std::min(y0 + kBlock, size.height), x1 = std::min(x0 + kBlock, size.width);
      for (int x = x0; x < x1; ++x) {
        for (int y = y0; y < y1; ++y) {
          const uint8_t* from = in + (static_cast<size_t>(y) * size.width + x) * channels;
          uint8_t* to = out + (static_cast<size_t>(x) * size.height + y) * channels;
          for (int c = 0; c < channels; ++c) to[c] = from[c];
        }
      }
    }
  }
}

// The upright region `region` (coordinates after the transposition) of `image` at 1 / scale, as
// pixels in memory.
absl::StatusOr<StoredImage> TransposedRegion(const StoredImage& image, const Rect& region,
                                             int scale, Impl& impl) {
  const Rect stored = Transposed(region);
  FW_RETURN_IF_ERROR(CopyRegion(image, stored, scale, impl.region));
  impl.transposed.resize(impl.region.size());
  Transpose(impl.region.data(), {stored.width, stored.height}, image.channels,
            impl.transposed.data());
  StoredImage result;
  result.size = {region.width, region.height};
  result.channels = image.channels;
  result.pixels = impl.transposed.data();
  result.stride = static_cast<size_t>(region.width) * image.channels;
  return result;
}

absl::Status Produce(const StoredImage& image, const Orientation& orientation,
                     const Geometry& geometry, const PixelFormat& format, std::byte* out,
                     Impl& impl);

// The crop is made upright in memory, resized whole by OpenCV, and its window written as it is.
absl::Status ProduceByOpenCv(const StoredImage& image, const Orientation& orientation,
                             const Geometry& geometry, const PixelFormat& format, std::byte* out,
                             Impl& impl) {
  const Size scaled = geometry.scaled;
  Geometry crop_only;
  crop_only.crop = geometry.crop;
  crop_only.scaled = {geometry.crop.width, geometry.crop.height};
  crop_only.window = {0, 0, geometry.crop.width, geometry.crop.height};
  const size_t stride = static_cast<size_t>(geometry.crop.width) * image.channels;
  std::vector<uint8_t> upright(stride * geometry.crop.height);
  FW_RETURN_IF_ERROR(Produce(image, orientation, crop_only, PixelFormat(),
                             reinterpret_cast<std::byte*>(upright.data()), impl));
  FW_RETURN_IF_ERROR(
      impl.resized.Resize(upright.data(), stride, crop_only.scaled, image.channels, scaled));
  StoredImage resized;
  resized.size = scaled;
  resized.channels = image.channels;
  resized.pixels = impl.resized.pixels();
  resized.stride = impl.resized.stride();
  Geometry rest = geometry;
  rest.crop = {0, 0, scaled.width, scaled.height};
  return Produce(resized, Orientation(), rest, format, out, impl);
}

absl::Status Produce(const StoredImage& image, const Orientation& orientation,
                     const Geometry& geometry, const PixelFormat& format, std::byte* out,
                     Impl& impl) {
  const bool same_size = geometry.scaled == Size{geometry.crop.width, geometry.crop.height};
  if (geometry.interpolation == Interpolation::kOpenCvLinear && !same_size) {
    return ProduceByOpenCv(image, orientation, geometry, format, out, impl);
  }
  const Size size = orientation.transpose ? Transposed(image.size) : image.size;
  const int scale = DecodeScale(image, geometry);
  const Rect region =
      impl.resampler.Plan(geometry, size, orientation.mirror_x, orientation.mirror_y, scale);
  auto run = [&](RowSource& source) {
    if (impl.clock == nullptr) return impl.resampler.Run(source, image.channels, format, out);
    ClockedRows clocked(source, *impl.clock);
    return impl.resampler.Run(clocked, image.channels, format, out);
  };
  if (!orientation.transpose) return WithRows(image, region, scale, run);
  FW_ASSIGN_OR_RETURN(const StoredImage upright, TransposedRegion(image, region, scale, impl));
  return WithRows(upright, {0, 0, region.width, region.height}, 1, run);
}

absl::Span<const uint8_t> AsUint8(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

// Opens the JPEG with the own decoder, or says why not.
jpeg::Uncovered OpenOwn(absl::Span<const std::byte> encoded, const FileHeader& header,
                        const ImageLimits& limits, Impl& impl) {
  if (!impl.use_own_decoder) return jpeg::Uncovered::kSwitchedOff;
  const jpeg::Uncovered why = impl.baseline.Open(AsUint8(encoded), limits);
  if (why != jpeg::Uncovered::kNone) return why;
  return impl.baseline.size() == header.size ? jpeg::Uncovered::kNone : jpeg::Uncovered::kDamaged;
}

// Calls decode() for the JPEG that impl.baseline has open, with what is known of its scan, and
// keeps what was learned.
template <typename Decode>
auto WithSeekIndex(absl::Span<const std::byte> encoded, Impl& impl, Decode decode) {
  impl.knew_seek_index = false;
  if (impl.seek_indexes == nullptr) return decode();
  const XXH128_hash_t hash = XXH3_128bits(encoded.data(), encoded.size());
  const ContentHash image = {hash.low64, hash.high64};
  impl.seek_indexes->Find(image, &impl.seek_index);
  impl.baseline.KeepSeekIndex(impl.seek_index);
  const jpeg::SeekIndex& index = impl.baseline.seek_index();
  const size_t known = index.points.size();
  impl.knew_seek_index = !index.empty();
  auto result = decode();
  if (!index.empty() && index.points.size() > known) {
    index.Encode(&impl.seek_index);
    impl.seek_indexes->Put(image, impl.seek_index);
  }
  return result;
}

void GiveBackLargeBuffers(Impl& impl) {
  impl.turbo.Close();
  impl.resized.Release();
  impl.resampler.GiveBackOver(kKeptBytes);
  impl.baseline.GiveBackOver(kKeptBytes);
  for (std::vector<uint8_t>* buffer : {&impl.whole, &impl.region, &impl.transposed}) {
    if (buffer->capacity() > kKeptBytes) std::vector<uint8_t>().swap(*buffer);
  }
}

// Runs `work` and cleans up. Buffers are vectors, so running out of memory is an exception that
// ends here.
template <typename Work>
absl::Status Guarded(Impl& impl, Work work) {
  absl::Status status;
  try {
    status = work();
  } catch (const std::exception& error) {
    status = absl::ResourceExhaustedError(absl::StrCat("image: ", error.what()));
  }
  GiveBackLargeBuffers(impl);
  return status;
}

Orientation OrientationOf(const FileHeader& header, bool apply) {
  return server::OrientationOf(apply || header.is_turned_always ? header.orientation : 1);
}

}  // namespace

absl::StatusOr<ImageInfo> ReadImageInfo(absl::Span<const std::byte> encoded, bool apply_orientation,
                                        const ImageLimits& limits, ImageWorkspace&,
                                        PixelValues values) {
  FW_ASSIGN_OR_RETURN(const FileHeader header, ReadFileHeader(encoded, limits, values));
  ImageInfo info;
  info.format = header.format;
  info.orientation = header.orientation;
  const bool transpose = OrientationOf(header, apply_orientation).transpose;
  info.size = transpose ? Transposed(header.size) : header.size;
  return info;
}

absl::Span<const std::byte> PackCoefficients(absl::Span<const std::byte> encoded,
                                             const ImageLimits& limits, ImageWorkspace& workspace) {
  Impl& impl = *workspace.impl();
  absl::Span<const uint8_t> document;
  Guarded(impl, [&]() -> absl::Status {
    FW_ASSIGN_OR_RETURN(const FileHeader header, ReadFileHeader(encoded, limits));
    if (header.kind != FileKind::kJpeg) return absl::OkStatus();
    const jpeg::Uncovered why = OpenOwn(encoded, header, limits, impl);
    if (why == jpeg::Uncovered::kNone) {
      document = impl.baseline.Pack(impl.packer, header.orientation);
    } else if (jpeg::LibjpegMayPack(why)) {
      document = jpeg::PackByLibjpeg(encoded, limits, impl.packer);
    }
    return absl::OkStatus();
  }).IgnoreError();  // what cannot be packed is decoded from its file, which says what is wrong
                     // with it
  return {reinterpret_cast<const std::byte*>(document.data()), document.size()};
}

uint32_t CoefficientsVersion() { return jpeg::kStoreVersion; }

bool IsCoefficients(absl::Span<const std::byte> encoded) { return jpeg::IsStore(AsUint8(encoded)); }

absl::Status VerifyImage(absl::Span<const std::byte> encoded) {
  return IsCoefficients(encoded) ? jpeg::VerifyStore(AsUint8(encoded)) : absl::OkStatus();
}

bool MakeSeekIndex(absl::Span<const std::byte> encoded, const ImageLimits& limits,
                   ImageWorkspace& workspace) {
  Impl& impl = *workspace.impl();
  bool is_made = false;
  Guarded(impl, [&]() -> absl::Status {
    FW_ASSIGN_OR_RETURN(const FileHeader header, ReadFileHeader(encoded, limits));
    if (header.kind == FileKind::kJpeg &&
        OpenOwn(encoded, header, limits, impl) == jpeg::Uncovered::kNone) {
      is_made = WithSeekIndex(encoded, impl,
                              [&] { return impl.baseline.IndexAll() == jpeg::Uncovered::kNone; });
    }
    return absl::OkStatus();
  }).IgnoreError();  // whoever decodes the image says what is wrong with it
  return is_made;
}

absl::Status DecodeInto(absl::Span<const std::byte> encoded, bool apply_orientation,
                        const ImageLimits& limits, const Geometry& geometry,
                        const PixelFormat& format, std::byte* out, ImageWorkspace& workspace,
                        PixelValues values) {
  FW_ASSIGN_OR_RETURN(const FileHeader header, ReadFileHeader(encoded, limits, values));
  const Orientation orientation = OrientationOf(header, apply_orientation);
  FW_RETURN_IF_ERROR(
      CheckGeometry(geometry, orientation.transpose ? Transposed(header.size) : header.size));
  Impl& impl = *workspace.impl();
  return Guarded(impl, [&]() -> absl::Status {
    StoredImage image;
    image.size = header.size;
    if (header.kind == FileKind::kJpeg) {
      jpeg::Uncovered why = OpenOwn(encoded, header, limits, impl);
      if (why == jpeg::Uncovered::kNone) {
        image.jpeg = &impl.baseline;
        const absl::Status status = WithSeekIndex(encoded, impl, [&] {
          return Produce(image, orientation, geometry, format, out, impl);
        });
        why = impl.baseline.uncovered();
        if (why == jpeg::Uncovered::kNone) {
          ++impl.counts.own_decoder;
          impl.counts.with_seek_index += impl.knew_seek_index;
          return status;
        }
      }
      ++impl.counts.libjpeg[static_cast<int>(why)];
      FW_RETURN_IF_ERROR(impl.turbo.Open(encoded, limits));
      if (impl.turbo.size() != header.size) return TwoSizes("JPEG");
      image.jpeg = &impl.turbo;
    } else if (header.kind == FileKind::kCoefficients) {
      FW_RETURN_IF_ERROR(impl.store.Open(AsUint8(encoded)));
      ++impl.counts.from_coefficients;
      image.jpeg = &impl.store;
    } else {
      image.channels = ChannelsOf(values);
      image.stride = static_cast<size_t>(header.size.width) * image.channels;
      impl.whole.resize(image.stride * header.size.height);
      FW_RETURN_IF_ERROR(values == PixelValues::kRgb
                             ? header.whole->Decode(impl.whole.data())
                             : header.whole->DecodeIndices(impl.whole.data()));
      image.pixels = impl.whole.data();
    }
    return Produce(image, orientation, geometry, format, out, impl);
  });
}

absl::Status ResampleInto(const uint8_t* pixels, Size size, int channels, const Geometry& geometry,
                          const PixelFormat& format, std::byte* out, ImageWorkspace& workspace) {
  if (channels < 1 || channels > kernels::kMaxChannels) {
    return absl::InvalidArgumentError(
        absl::StrCat("an image of ", channels, " channels; 1 to 4 are possible"));
  }
  FW_RETURN_IF_ERROR(CheckGeometry(geometry, size));
  Impl& impl = *workspace.impl();
  return Guarded(impl, [&] {
    StoredImage image;
    image.size = size;
    image.channels = channels;
    image.pixels = pixels;
    image.stride = static_cast<size_t>(size.width) * channels;
    return Produce(image, Orientation(), geometry, format, out, impl);
  });
}

static_assert(kMaxJpegSide == jpeg::RoundTrip::kMaxSide);

absl::Status AddJpegArtefacts(const uint8_t* pixels, Size size, int channels, int quality,
                              uint8_t* out, ImageWorkspace& workspace) {
  Impl& impl = *workspace.impl();
  WorkClock never;
  const absl::Status status = impl.round_trip.Run(pixels, size, channels, quality,
                                                  impl.clock == nullptr ? never : *impl.clock, out);
  if (NeedOfJpegArtefacts(size, channels) > static_cast<int64_t>(kKeptBytes))
    impl.round_trip = jpeg::RoundTrip();
  return status;
}

int64_t NeedOfJpegArtefacts(Size size, int channels) {
  return jpeg::RoundTrip::Bytes(size, channels);
}

std::string SimdTarget() { return kernels::Planes().target; }

}  // namespace feedwater::server
