#include "server/graph/verified_record.h"

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/codec/image.h"

namespace feedwater::server {

absl::Status ParseVerified(const Dataset& dataset, int64_t record,
                           absl::Span<const absl::Span<const std::byte>> bytes, Record* out) {
  FW_RETURN_IF_ERROR(dataset.Parse(record, bytes, out));
  for (size_t i = 0; i < out->fields.size(); ++i) {
    const Tensor& field = out->fields[i];
    if (field.spec.layout != Layout::kEncoded) continue;
    const absl::Status status = VerifyImage({field.data, field.bytes()});
    if (!status.ok())
      return Annotate(status, absl::StrCat("field '", dataset.fields()[i].name, "'"));
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
