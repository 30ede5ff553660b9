#include "server/source/field_requests.h"

#include <utility>

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
          .Param("from", &FieldParams::from,
                 "The column, or several with `;` between them, of which the first that a record "
                 "has is taken. Left out: the column of the field's own name.")
          .Param("dtype", &FieldParams::dtype,
                 "As what its numbers are delivered, or what text spells or bytes hold. Left out: "
                 "integers as int64, other numbers as stored, text and bytes as uint8.")
          .Param("shape", &FieldParams::shape,
                 "Of one value, without the batch; -1 for a length that differs. One -1 at most, "
                 "except for .npy values, which say all their lengths. Left out: as stored.")
          .Param("file", &FieldParams::file,
                 "The value is the path of a file below the dataset's `path` (of a dataset that is "
                 "one file: beside it); the field is that file's bytes.")
          .Param("classes", &FieldParams::classes,
                 "`auto`: strings become numbers in sorted order, and are the dataset's classes. "
                 "Not with `optional`: no number stands for none.",
                 OneOf({"", "auto"}))
          .Param("offset", &FieldParams::offset,
                 "Of format raw alone, which has no columns: the byte of a record where the field "
                 "begins.",
                 AtLeast(0))
          .Param("optional", &FieldParams::optional,
                 "A record without it is no bad sample: it has no elements there, or zeros where "
                 "the shape is fixed.");
  return schema;
}

const char* ExampleOf(absl::string_view key) {
  return key == "from"       ? "image: {from: path}"
         : key == "dtype"    ? "weight: {dtype: float32}"
         : key == "shape"    ? "boxes: {from: bbox, dtype: float32, shape: [-1, 4]}"
         : key == "file"     ? "data: {from: path, file: true}"
         : key == "classes"  ? "label: {from: species, classes: auto}"
         : key == "offset"   ? "image: {offset: 1, dtype: uint8, shape: [28, 28, 1]}"
         : key == "optional" ? "mask_data: {from: mask, file: true, optional: true}"
                             : "";
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
  if (field.has_classes && field.is_optional)
    return node.Error(absl::StrCat(
        what,
        " is a class's number, and none stands for a record without a class: 'optional' does not "
        "go with 'classes'; cure: leave it out, and give records that have no class a text of "
        "their own for that"));
  return field;
}

}  // namespace

const char kFieldsText[] =
    "`fields` has an entry for each field of a record: its name, and the column that it is made of "
    "(`image: path`) or a map of the keys below. `label:` alone is the column of that name. Left "
    "out, every column is a field under its own name, where the format does not say otherwise. "
    "`feedwater describe dataset PIPELINE` shows the fields that come of it, and of a pipeline "
    "without `fields` the columns that there are.";

const std::vector<FieldKey>& FieldKeys() {
  static const auto* keys = [] {
    auto* made = new std::vector<FieldKey>;
    for (ParamInfo param : FieldSchema().params()) {
      // An empty text or list is no value: the description says what happens then.
      if (param.default_text == "\"\"" || param.default_text == "[]") param.default_text.clear();
      std::erase(param.choices, "");
      std::string example = ExampleOf(param.name);
      made->push_back({std::move(param), std::move(example)});
    }
    return made;
  }();
  return *keys;
}

bool IsFields(const ParamInfo& param) { return param.type == ParamType<FieldRequests>::kName; }

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
