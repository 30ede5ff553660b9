#include "client/cli/image_converter.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "server/base/status.h"
#include "server/codec/image_writer.h"
#include "server/codec/jpeg/baseline_transcoder.h"
#include "server/codec/orientation.h"
#include "server/codec/whole/whole_decoder.h"
#include "server/storage/engine.h"  // kReadPadding

namespace feedwater::cli {
namespace {

using server::Size;

absl::Span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

bool IsJpeg(absl::Span<const std::byte> encoded) {
  return encoded.size() > 2 && encoded[0] == std::byte{0xFF} && encoded[1] == std::byte{0xD8} &&
         encoded[2] == std::byte{0xFF};
}

Size Shrunk(Size size, int longer) {
  const int64_t most = std::max(size.width, size.height);
  const auto shrink = [&](int side) {
    return std::max<int>(1, static_cast<int>((side * int64_t{longer} + most / 2) / most));
  };
  return {shrink(size.width), shrink(size.height)};
}

// An EXIF segment that says how the image is turned and nothing else, behind the JPEG's first
// segment (JFIF's).
void AddOrientation(int orientation, std::string* jpeg) {
  constexpr size_t kSizeAt = 4;  // of the first segment, behind SOI and its marker
  const auto byte = [&](size_t at) { return static_cast<unsigned char>((*jpeg)[at]); };
  std::string exif(
      "\xFF\xE1\0\x22"             // APP1 of 34 bytes
      "Exif\0\0MM\0*\0\0\0\x08"    // big-endian TIFF, its directory at byte 8
      "\0\1\1\x12\0\3\0\0\0\1\0",  // one entry: orientation, one short
      29);
  exif.push_back(static_cast<char>(orientation));
  exif.append("\0\0\0\0\0\0", 6);  // the rest of its value; no further directory
  jpeg->insert(kSizeAt + (byte(kSizeAt) << 8 | byte(kSizeAt + 1)), exif);
}

}  // namespace

bool SeemsMask(absl::Span<const std::byte> encoded) {
  constexpr size_t kColorType = 25;  // of a PNG: behind its signature, and in its first chunk
  constexpr char kGray = 0, kPalette = 3;
  const absl::string_view bytes(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  if (absl::StartsWith(bytes, "P2") || absl::StartsWith(bytes, "P5")) return true;
  return absl::StartsWith(bytes, "\x89PNG\r\n\x1a\n") && bytes.size() > kColorType &&
         (bytes[kColorType] == kGray || bytes[kColorType] == kPalette);
}

absl::StatusOr<bool> ImageConverter::IsLarge(absl::Span<const std::byte> encoded) const {
  FW_ASSIGN_OR_RETURN(const server::FileHeader header, server::ReadFileHeader(encoded, limits_));
  return std::max(header.size.width, header.size.height) > options_.resize_max;
}

absl::StatusOr<std::string> ImageConverter::Resized(absl::Span<const std::byte> encoded,
                                                    const server::FileHeader& header) {
  server::Geometry geometry;
  // A header says the size as it is stored.
  const server::Orientation turn = server::OrientationOf(header.orientation);
  const Size size =
      header.is_turned_always && turn.transpose ? server::Transposed(header.size) : header.size;
  geometry.crop = {0, 0, size.width, size.height};
  geometry.scaled = Shrunk(size, options_.resize_max);
  geometry.window = {0, 0, geometry.scaled.width, geometry.scaled.height};
  pixels_.resize(size_t{3} * static_cast<size_t>(geometry.scaled.width) *
                 static_cast<size_t>(geometry.scaled.height));
  FW_RETURN_IF_ERROR(server::DecodeInto(encoded, /*apply_orientation=*/false, limits_, geometry,
                                        server::PixelFormat(),
                                        reinterpret_cast<std::byte*>(pixels_.data()), workspace_));
  FW_ASSIGN_OR_RETURN(std::string jpeg, server::WritePicture({pixels_.data(), geometry.scaled, 3},
                                                             ".jpg", options_.quality));
  // The image stays as it was turned, and what says so stays with it.
  if (header.orientation != 1 && !header.is_turned_always)
    AddOrientation(header.orientation, &jpeg);
  return jpeg;
}

bool ImageConverter::Pack(absl::Span<const std::byte> encoded, std::string* made) {
  const auto packed = server::PackCoefficients(encoded, limits_, workspace_);
  // The next field's document comes in its place.
  made->assign(reinterpret_cast<const char*>(packed.data()), packed.size());
  return !packed.empty();
}

absl::StatusOr<absl::Span<const std::byte>> ImageConverter::Convert(
    absl::Span<const std::byte> encoded, Shrinking shrinking, std::string* made) {
  if (!options_.reads_images()) return encoded;
  const bool is_jpeg = IsJpeg(encoded);
  const bool packs = options_.jpeg == ConvertOptions::Jpeg::kCoefficients;
  if (!is_jpeg && server::FindWholeFormat(encoded) == nullptr && !server::IsCoefficients(encoded))
    return encoded;
  if (shrinking != Shrinking::kNo) {
    FW_ASSIGN_OR_RETURN(const server::FileHeader header, server::ReadFileHeader(encoded, limits_));
    if (std::max(header.size.width, header.size.height) > options_.resize_max) {
      if (shrinking == Shrinking::kUnlessMask && SeemsMask(encoded))
        return absl::InvalidArgumentError(kMaskCure);
      FW_ASSIGN_OR_RETURN(std::string jpeg, Resized(encoded, header));
      const size_t bytes = jpeg.size();
      jpeg.append(server::kReadPadding, '\0');
      if (!packs || !Pack(BytesOf(jpeg).first(bytes), made)) *made = jpeg.substr(0, bytes);
      return BytesOf(*made);
    }
  }
  if (packs) return Pack(encoded, made) ? BytesOf(*made) : encoded;
  if (options_.jpeg != ConvertOptions::Jpeg::kBaseline || !is_jpeg) return encoded;
  FW_ASSIGN_OR_RETURN(std::optional<std::string> baseline,
                      server::ToBaselineJpeg(encoded, limits_));
  if (!baseline) return encoded;
  *made = *std::move(baseline);
  return BytesOf(*made);
}

}  // namespace feedwater::cli
