#include "server/source/field_requests.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxFields = 1000, kMaxAxes = 8;
constexpr int64_t kMaxAxis = int64_t{1} << 40;

struct FieldParams {
  std::string from, dtype, classes;
  std::vector<int64_t> shape;
  int64_t offset = 0;
  bool file = false, optional = false;
};

const Schema<FieldParams>& FieldSchema() {
  static const Schema<FieldParams> schema =
      Schema<FieldParams>()
          .Param("from", &FieldParams::from, "The column; the field's own name when left out.")
          .Param("dtype", &FieldParams::dtype, "As what its numbers are delivered.")
          .Param("shape", &FieldParams::shape,
                 "Of one value, without the batch; -1 for a length that differs. One -1 at most, "
                 "except for .npy values, which say all their lengths.")
          .Param("file", &FieldParams::file,
                 "The value is a path below the dataset's; the field is that file's bytes.")
          .Param("classes", &FieldParams::classes,
                 "`auto`: strings become numbers in sorted order, and are the dataset's classes.",
                 OneOf({"", "auto"}))
          .Param("offset", &FieldParams::offset, "Where in a record of format raw its bytes begin.",
                 AtLeast(0))
          .Param("optional", &FieldParams::optional, "Records without it are no bad samples.");
  return schema;
}

absl::StatusOr<FieldRequest> ReadField(const YamlNode& key, const YamlNode& node) {
  FieldRequest field;
  field.name = key.scalar;
  field.from = key.scalar;
  field.where = key.Where();
  if (field.name.empty()) return key.Error("a field needs a name");
  if (node.kind == YamlNode::Kind::kNull) return field;
  if (node.is_scalar()) {
    field.from = node.scalar;
    return field;
  }
  const std::string what = absl::StrCat("field '", Printable(field.name), "'");
  FW_ASSIGN_OR_RETURN(const FieldParams params, FieldSchema().Read(node, what));
  if (!params.from.empty()) field.from = params.from;
  if (const YamlNode* dtype = node.Find("dtype")) {
    const absl::StatusOr<DType> known = DTypeFromName(params.dtype);
    if (!known.ok()) return dtype->Error(known.status().message());
    field.dtype = *known;
  }
  if (const YamlNode* shape = node.Find("shape")) {
    if (params.shape.size() > kMaxAxes)
      return shape->Error(absl::StrCat("'shape' has more than ", kMaxAxes, " axes"));
    field.shape.emplace();
    for (const int64_t axis : params.shape) {
      if (axis < -1 || axis > kMaxAxis)
        return shape->Error(absl::StrCat("'shape' takes lengths, or -1, not ", axis));
      field.shape->push_back(axis);
    }
  }
  if (node.Find("offset") != nullptr) field.offset = params.offset;
  field.is_file = params.file;
  field.has_classes = params.classes == "auto";
  field.is_optional = params.optional;
  if (field.is_file && (field.dtype || field.shape))
    return node.Error(
        absl::StrCat(what, " is a file's bytes: 'dtype' and 'shape' do not go with 'file'"));
  if (field.is_file && field.has_classes)
    return node.Error(absl::StrCat(what, " cannot be a file and a class"));
  if (field.has_classes && (field.dtype || field.shape))
    return node.Error(absl::StrCat(
        what, " is a class's number, int64: 'dtype' and 'shape' do not go with 'classes'"));
  return field;
}

}  // namespace

const char* const ParamType<FieldRequests>::kName = "map of fields";
const char* const ParamType<FieldRequests>::kJson =
    R"({"type":"object","additionalProperties":{"anyOf":[{"type":["string","number","null"]},{"type":"object","additionalProperties":false,"properties":{"from":{"type":["string","number"]},"dtype":{"type":"string"},"shape":{"type":"array","items":{"type":"integer","minimum":-1}},"file":{"type":"boolean"},"classes":{"enum":["auto"]},"offset":{"type":"integer","minimum":0},"optional":{"type":"boolean"}}}]}})";

absl::Status ParamType<FieldRequests>::Read(const YamlNode& node, FieldRequests* value) {
  if (!node.is_map())
    return node.Error(
        absl::StrCat("must be a map such as {image: COLUMN, label: COLUMN}, not ", node.Found()));
  if (node.entries.size() > kMaxFields)
    return node.Error(absl::StrCat("must be at most ", kMaxFields, " fields"));
  FieldRequests read;
  for (const auto& [key, field] : node.entries) {
    FW_ASSIGN_OR_RETURN(FieldRequest request, ReadField(key, field));
    read.list.push_back(std::move(request));
  }
  *value = std::move(read);
  return absl::OkStatus();
}

std::string ParamType<FieldRequests>::Text(const FieldRequests& value) {
  std::vector<std::string> fields;
  for (const FieldRequest& field : value.list) {
    std::string text = absl::StrCat(ParamType<std::string>::Text(field.name),
                                    ": {from: ", ParamType<std::string>::Text(field.from));
    if (field.dtype) absl::StrAppend(&text, ", dtype: ", DTypeName(*field.dtype));
    if (field.shape) absl::StrAppend(&text, ", shape: [", absl::StrJoin(*field.shape, ", "), "]");
    if (field.offset) absl::StrAppend(&text, ", offset: ", *field.offset);
    if (field.is_file) absl::StrAppend(&text, ", file: true");
    if (field.has_classes) absl::StrAppend(&text, ", classes: auto");
    if (field.is_optional) absl::StrAppend(&text, ", optional: true");
    fields.push_back(absl::StrCat(text, "}"));
  }
  return absl::StrCat("{", absl::StrJoin(fields, ", "), "}");
}

absl::Status ParamType<FieldRequests>::Check(const FieldRequests&, const Constraint&) {
  return absl::OkStatus();
}

}  // namespace feedwater::server
