#include "server/codec/file_header.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/codec/jpeg/coefficient_store.h"
#include "server/codec/jpeg/markers.h"

namespace feedwater::server {
namespace {

absl::Span<const uint8_t> AsUint8(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

absl::Status HasNoIndices(const FileHeader& header) {
  std::string kind = header.whole == nullptr ? "JPEG" : header.whole->Kind();
  if (kind.empty()) kind = absl::AsciiStrToUpper(header.format);
  return absl::InvalidArgumentError(absl::StrCat(
      "the image is a ", kind, ", and only palette and gray PNGs of 8 bits or less have indices; ",
      "cure: write the labels as such a PNG, or decode the image with mode RGB"));
}

}  // namespace

absl::StatusOr<FileHeader> ReadFileHeader(absl::Span<const std::byte> encoded,
                                          const ImageLimits& limits, PixelValues values) {
  FileHeader header;
  if (encoded.empty()) return absl::InvalidArgumentError("empty image file");
  if (StartsWith(encoded, "\xFF\xD8")) {
    FW_ASSIGN_OR_RETURN(const JpegHeader jpeg, ReadJpegHeader(encoded));
    header.format = "jpeg";
    header.kind = FileKind::kJpeg;
    header.size = jpeg.size;
    header.orientation = jpeg.orientation;
  } else if (jpeg::IsStore(AsUint8(encoded))) {
    FW_ASSIGN_OR_RETURN(const jpeg::StoreInfo info, jpeg::ReadStoreInfo(AsUint8(encoded)));
    header.format = "coefficients";
    header.kind = FileKind::kCoefficients;
    header.size = info.size;
    header.orientation = info.orientation;
  } else if (const WholeFormat* format = FindWholeFormat(encoded)) {
    header.format = format->name;
    header.kind = FileKind::kWhole;
    header.whole = format->make();
    FW_ASSIGN_OR_RETURN(const WholeHeader whole, header.whole->Open(encoded, limits));
    header.size = whole.size;
    header.orientation = whole.orientation;
    header.is_turned_always = whole.is_turned_always;
    header.more_bytes = whole.more_bytes;
    header.has_indices = whole.has_indices;
  } else {
    return UnknownFormat(encoded);
  }
  FW_RETURN_IF_ERROR(CheckPixels(header.size.width, header.size.height, limits));
  if (values == PixelValues::kIndices && !header.has_indices) return HasNoIndices(header);
  return header;
}

}  // namespace feedwater::server
