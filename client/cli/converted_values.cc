#include "client/cli/converted_values.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/yaml.h"  // Printable

namespace feedwater::cli {

ConvertedValues::ConvertedValues(const ConvertOptions& options, const server::ImageLimits& limits,
                                 const RecordMembers& members,
                                 const std::vector<server::FieldSpec>& fields)
    : options_(options),
      limits_(limits),
      members_(members),
      fields_(fields),
      images_(options, limits),
      shrinking_(members.fields(), Shrinking::kNo),
      made_(members.fields()) {
  if (options.resize_max == 0) return;
  size_t images = 0;
  for (size_t i = 0; i < shrinking_.size(); ++i) images += members.is_encoded(i) ? 1 : 0;
  for (size_t i = 0; i < shrinking_.size(); ++i) {
    if (!options.resize_fields.empty()) {
      if (absl::c_linear_search(options.resize_fields, fields[i].name))
        shrinking_[i] = Shrinking::kYes;
    } else {
      shrinking_[i] = images > 1 ? Shrinking::kUnlessMask : Shrinking::kYes;
    }
  }
}

bool ConvertedValues::shrinks() const {
  for (size_t i = 0; i < shrinking_.size(); ++i) {
    if (members_.is_encoded(i) && shrinking_[i] != Shrinking::kNo) return true;
  }
  return false;
}

absl::Status ConvertedValues::CheckMasks(const server::Record& parsed) const {
  for (size_t i = 0; i < parsed.fields.size(); ++i) {
    const server::Tensor& value = parsed.fields[i];
    const absl::Span<const std::byte> encoded(value.data, value.bytes());
    if (!members_.is_encoded(i) || shrinking_[i] != Shrinking::kUnlessMask || !SeemsMask(encoded))
      continue;
    if (images_.IsLarge(encoded).value_or(false)) {
      return absl::InvalidArgumentError(
          absl::StrCat("field '", server::Printable(fields_[i].name), "' ", kMaskCure));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const server::Record*> ConvertedValues::Make(int64_t, const server::Record& parsed) {
  parsed_ = &parsed;
  if (!options_.reads_images()) return &parsed;
  values_.fields = parsed.fields;
  for (size_t i = 0; i < values_.fields.size(); ++i) {
    if (!members_.is_encoded(i)) continue;
    server::Tensor& value = values_.fields[i];
    const auto image = images_.Convert({value.data, value.bytes()}, shrinking_[i], &made_[i]);
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
  if (options_.jpeg == ConvertOptions::Jpeg::kKeep || shrinking_[field] != Shrinking::kNo ||
      !members_.is_encoded(field) || values_.fields[field].data == parsed_->fields[field].data) {
    return absl::OkStatus();
  }
  FW_RETURN_IF_ERROR(Decode(parsed_->fields[field], &before_));
  FW_RETURN_IF_ERROR(Decode(written, &after_));
  if (before_ == after_) return absl::OkStatus();
  return absl::DataLossError("its pixels are not those of the source");
}

}  // namespace feedwater::cli
