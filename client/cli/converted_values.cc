#include "client/cli/converted_values.h"

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace feedwater::cli {

absl::StatusOr<const server::Record*> ConvertedValues::Make(int64_t, const server::Record& parsed) {
  parsed_ = &parsed;
  if (!options_.reads_images()) return &parsed;
  values_.fields = parsed.fields;
  for (size_t i = 0; i < values_.fields.size(); ++i) {
    if (!members_.is_encoded(i)) continue;
    server::Tensor& value = values_.fields[i];
    const auto image = images_.Convert({value.data, value.bytes()}, &made_[i]);
    if (!image.ok()) {
      return server::Annotate(image.status(), absl::StrCat("field '", fields_[i].name, "'"));
    }
    value.data = const_cast<std::byte*>(image->data());
    value.spec.shape = {static_cast<int64_t>(image->size())};
  }
  return &values_;
}

absl::Status ConvertedValues::Decode(const server::Tensor& image, std::vector<std::byte>* pixels) {
  const absl::Span<const std::byte> encoded(image.data, image.bytes());
  FW_ASSIGN_OR_RETURN(
      const server::ImageInfo info,
      server::ReadImageInfo(encoded, /*apply_orientation=*/false, limits_, workspace_));
  server::Geometry geometry;
  geometry.crop = {0, 0, info.size.width, info.size.height};
  geometry.scaled = info.size;
  geometry.window = geometry.crop;
  pixels->resize(size_t{3} * static_cast<size_t>(info.size.width) *
                 static_cast<size_t>(info.size.height));
  return server::DecodeInto(encoded, /*apply_orientation=*/false, limits_, geometry,
                            server::PixelFormat(), pixels->data(), workspace_);
}

absl::Status ConvertedValues::CheckSame(size_t field, const server::Tensor& written) {
  if (options_.jpeg == ConvertOptions::Jpeg::kKeep || options_.resize_max > 0 ||
      !members_.is_encoded(field) || values_.fields[field].data == parsed_->fields[field].data) {
    return absl::OkStatus();
  }
  FW_RETURN_IF_ERROR(Decode(parsed_->fields[field], &before_));
  FW_RETURN_IF_ERROR(Decode(written, &after_));
  if (before_ == after_) return absl::OkStatus();
  return absl::DataLossError("its pixels are not those of the source");
}

}  // namespace feedwater::cli
