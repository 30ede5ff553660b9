#include "server/graph/op_schema.h"

#include "absl/strings/str_join.h"

namespace feedwater::server {

const char* RandomnessText(Randomness randomness) {
  switch (randomness) {
    case Randomness::kNone:
      return "none";
    case Randomness::kPerSample:
      return "per sample";
    case Randomness::kPerBatch:
      return "per batch";
  }
  return "none";
}

std::string OpEntry::InputText(size_t i) const {
  const Port& port = inputs[is_repeated ? 0 : i];
  if (port.layouts.size() == 1 && port.layouts[0] == Layout::kEncoded) return "a compressed image";
  std::vector<std::string> dtypes, layouts;
  for (DType dtype : port.dtypes) dtypes.emplace_back(DTypeName(dtype));
  for (Layout layout : port.layouts) layouts.emplace_back(LayoutName(layout));
  std::string text = dtypes.empty() ? "any dtype" : absl::StrJoin(dtypes, " or ");
  if (!layouts.empty()) absl::StrAppend(&text, ", ", absl::StrJoin(layouts, " or "));
  return text;
}

}  // namespace feedwater::server
