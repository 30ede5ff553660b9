#include "server/graph/unknown_field.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

constexpr char kUnknownFieldUrl[] = "feedwater/unknown-field";

}  // namespace

absl::Status UnknownFieldError(const YamlNode& place, absl::string_view reader,
                               absl::string_view name, const std::vector<std::string>& known,
                               absl::string_view cure) {
  absl::Status status =
      place.Error(absl::StrCat(reader, " unknown field '", name, "'", Suggest(name, known), cure));
  status.SetPayload(kUnknownFieldUrl, absl::Cord());
  return status;
}

bool IsUnknownField(const absl::Status& status) {
  return !status.ok() && status.GetPayload(kUnknownFieldUrl).has_value();
}

}  // namespace feedwater::server
