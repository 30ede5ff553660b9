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

const char* FusionText(Fusion fusion) {
  switch (fusion) {
    case Fusion::kNone:
      return "no";
    case Fusion::kDecode:
      return "yes, with the crops, resizes, flips and pixel ops that follow it directly";
    case Fusion::kGeometry:
      return "yes, with decode before it and with crops, resizes, flips and pixel ops on both "
             "sides";
    case Fusion::kPixel:
      return "yes, with decode, crops, resizes, flips and pixel ops before it";
  }
  return "no";
}

namespace {

std::string PortText(const Port& port) {
  if (port.layouts.size() == 1 && port.layouts[0] == Layout::kEncoded) return "a compressed image";
  std::vector<std::string> dtypes, layouts;
  for (DType dtype : port.dtypes) dtypes.emplace_back(DTypeName(dtype));
  for (Layout layout : port.layouts) layouts.emplace_back(LayoutName(layout));
  std::string text = dtypes.empty() ? "any dtype" : absl::StrJoin(dtypes, " or ");
  if (!layouts.empty()) absl::StrAppend(&text, ", ", absl::StrJoin(layouts, " or "));
  return text;
}

}  // namespace

std::string OpEntry::InputText(size_t i) const { return PortText(inputs[is_repeated ? 0 : i]); }

std::string OpEntry::OutputText(size_t i) const {
  const Port& port = outputs[is_repeated ? 0 : i];
  return port.layouts.empty() && port.dtypes.empty() ? "" : PortText(port);
}

}  // namespace feedwater::server
