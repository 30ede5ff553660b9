// The values that `feedwater convert` writes: a record's own, its images perhaps resized or made
// baseline.
#pragma once

#include <string>
#include <vector>

#include "client/cli/convert_options.h"
#include "client/cli/image_converter.h"
#include "client/cli/record_members.h"
#include "client/cli/value_maker.h"
#include "server/codec/image.h"

namespace feedwater::cli {

class ConvertedValues final : public ValueMaker {
 public:
  // `members` and `fields`, the dataset's, outlive it.
  ConvertedValues(const ConvertOptions& options, const server::ImageLimits& limits,
                  const RecordMembers& members, const std::vector<server::FieldSpec>& fields);

  absl::StatusOr<const server::Record*> Make(int64_t record, const server::Record& parsed) override;
  // Whether any field's images are shrunk.
  bool shrinks() const;
  // InvalidArgument: a field of the record seems to be a mask, and nobody has said that it is to be
  // shrunk.
  absl::Status CheckMasks(const server::Record& parsed) const;
  // Of an image that was made baseline: both are decoded, and must have equal pixels.
  absl::Status CheckSame(size_t field, const server::Tensor& written) override;

 private:
  absl::Status Decode(const server::Tensor& image, std::vector<std::byte>* pixels);

  const ConvertOptions options_;
  const server::ImageLimits limits_;
  const RecordMembers& members_;
  const std::vector<server::FieldSpec>& fields_;
  ImageConverter images_;
  std::vector<Shrinking> shrinking_;  // by field
  std::vector<std::string> made_;     // by field
  server::Record values_;
  const server::Record* parsed_ = nullptr;
  server::ImageWorkspace workspace_;
  std::vector<std::byte> before_, after_;  // pixels
};

}  // namespace feedwater::cli
