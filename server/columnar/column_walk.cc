#include "server/columnar/column_walk.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

using arrow::DataType;
using arrow::Type;

constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxTypeText = 200, kMaxNameBytes = 4 << 10;

// Where the text is too long the names of lists' items are left out, since units of time stand
// behind them, which columns are compared by.
std::string TypeText(const DataType& given) {
  std::string text = given.ToString();
  if (text.size() <= kMaxTypeText) return text;
  const DataType* type = &StorageOf(given);
  std::string lists;
  for (size_t depth = 0; depth < kMaxDepth && arrow::is_list_like(type->id()); ++depth) {
    absl::StrAppend(&lists, type->name(), "<");
    type = &StorageOf(*type->field(0)->type());
  }
  return absl::StrCat(lists, type->ToString().substr(0, kMaxTypeText), "...");
}

// Adds the axes of a list's items; what stands in `trouble` otherwise.
void SettleItems(const DataType& given, ColumnSpec* spec, std::string* trouble) {
  const DataType& type = StorageOf(given);
  if (NumberOf(type, &spec->dtype)) return;
  switch (type.id()) {
    case Type::FIXED_SIZE_LIST: {
      const auto& list = static_cast<const arrow::FixedSizeListType&>(type);
      spec->shape.push_back(list.list_size());
      if (spec->shape.size() > kMaxColumnarAxes) {
        *trouble = "has too many axes; cure: flatten it";
        return;
      }
      return SettleItems(*list.value_type(), spec, trouble);
    }
    case Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryType&>(type);
      if (!NumberOf(StorageOf(*dictionary.value_type()), &spec->dtype))
        *trouble =
            "is a list of values other than numbers; cure: write it as one text, such as JSON";
      return;
    }
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::LIST_VIEW:
    case Type::LARGE_LIST_VIEW:
      *trouble =
          "is a list of lists, whose lengths may differ; cure: write the inner ones as "
          "fixed_size_list, or all numbers in one list and their shape in another column";
      return;
    default:
      *trouble = "is a list of values other than numbers; cure: write it as one text, such as JSON";
  }
}

void Settle(const DataType& given, ColumnSpec* spec, std::string* trouble) {
  const DataType* type = &StorageOf(given);
  spec->kind = ColumnSpec::Kind::kNumbers;
  if (type->id() == Type::DICTIONARY) {
    type = &StorageOf(*static_cast<const arrow::DictionaryType&>(*type).value_type());
    if (arrow::is_nested(type->id())) {
      *trouble = "is a dictionary of lists; cure: write the lists themselves";
      return;
    }
  }
  if (NumberOf(*type, &spec->dtype)) return;
  switch (type->id()) {
    case Type::STRING:
    case Type::LARGE_STRING:
    case Type::STRING_VIEW:
    case Type::BINARY:
    case Type::LARGE_BINARY:
    case Type::BINARY_VIEW:
    case Type::FIXED_SIZE_BINARY: {
      const bool is_text = type->id() == Type::STRING || type->id() == Type::LARGE_STRING ||
                           type->id() == Type::STRING_VIEW;
      spec->kind = is_text ? ColumnSpec::Kind::kText : ColumnSpec::Kind::kBytes;
      spec->dtype = DType::kUInt8;
      spec->shape = {-1};
      return;
    }
    case Type::LIST:
    case Type::LARGE_LIST:
      spec->shape = {-1};
      return SettleItems(*static_cast<const arrow::BaseListType&>(*type).value_type(), spec,
                         trouble);
    case Type::FIXED_SIZE_LIST:
      return SettleItems(*type, spec, trouble);
    case Type::DECIMAL32:
    case Type::DECIMAL64:
    case Type::DECIMAL128:
    case Type::DECIMAL256:
      *trouble = "is decimal; cure: write it as float64 or as text";
      return;
    case Type::MAP:
      *trouble = "is a map; cure: write it as a struct, or as one text, such as JSON";
      return;
    case Type::NA:
      *trouble = "has no values at all; cure: write it with a type";
      return;
    case Type::STRUCT:
      *trouble = "is a struct without fields";
      return;
    default:
      *trouble = "is of a type that is not read; cure: write it as a number, text or bytes";
  }
}

class Walk {
 public:
  explicit Walk(const Wanted& wanted) : wanted_(wanted) {}

  arrow::Status Add(const arrow::Field& field, const std::string& name, std::vector<int> path) {
    if (path.size() > kMaxDepth)
      return arrow::Status::Invalid("has structs more than ", kMaxDepth, " deep");
    if (name.size() > kMaxNameBytes)
      return arrow::Status::Invalid("has a column whose name is longer than ", kMaxNameBytes,
                                    " bytes");
    const DataType& type = StorageOf(*field.type());
    if (type.id() == Type::STRUCT && type.num_fields() > 0) {
      for (int i = 0; i < type.num_fields(); ++i) {
        std::vector<int> below = path;
        below.push_back(i);
        ARROW_RETURN_NOT_OK(
            Add(*type.field(i), name + "." + type.field(i)->name(), std::move(below)));
      }
      return arrow::Status::OK();
    }
    if (columns.size() >= kMaxColumnarColumns)
      return arrow::Status::Invalid("has more than ", kMaxColumnarColumns, " columns");
    if (!names_.insert(name).second)
      return arrow::Status::Invalid("has two columns '", name, "'; cure: rename one of them");
    WalkedColumn walked;
    walked.path = std::move(path);
    ColumnarColumn& column = walked.column;
    column.spec.name = name;
    column.type = TypeText(*field.type());
    Settle(type, &column.spec, &column.trouble);
    int64_t bytes = 0, row = 0;
    if (column.trouble.empty() && !StagedBytes(column.spec, &bytes, &row))
      column.trouble = "is too large for a record";
    column.is_staged = column.trouble.empty() && wanted_(name);
    columns.push_back(std::move(walked));
    return arrow::Status::OK();
  }

  std::vector<WalkedColumn> columns;

 private:
  const Wanted& wanted_;
  std::unordered_set<std::string> names_;
};

}  // namespace

const DataType& StorageOf(const DataType& given) {
  const DataType* type = &given;
  while (type->id() == Type::EXTENSION)
    type = static_cast<const arrow::ExtensionType&>(*type).storage_type().get();
  return *type;
}

bool NumberOf(const DataType& type, DType* dtype) {
  switch (type.id()) {
    case Type::BOOL:
      *dtype = DType::kBool;
      return true;
    case Type::UINT8:
      *dtype = DType::kUInt8;
      return true;
    case Type::INT8:
      *dtype = DType::kInt8;
      return true;
    case Type::UINT16:
      *dtype = DType::kUInt16;
      return true;
    case Type::INT16:
      *dtype = DType::kInt16;
      return true;
    case Type::INT32:
    case Type::DATE32:
    case Type::TIME32:
      *dtype = DType::kInt32;
      return true;
    case Type::UINT32:
    case Type::UINT64:
    case Type::INT64:
    case Type::DATE64:
    case Type::TIME64:
    case Type::TIMESTAMP:
    case Type::DURATION:
      *dtype = DType::kInt64;
      return true;
    case Type::HALF_FLOAT:
      *dtype = DType::kFloat16;
      return true;
    case Type::FLOAT:
      *dtype = DType::kFloat32;
      return true;
    case Type::DOUBLE:
      *dtype = DType::kFloat64;
      return true;
    default:
      return false;
  }
}

arrow::Result<std::vector<WalkedColumn>> WalkColumns(const arrow::Schema& schema,
                                                     const Wanted& wanted) {
  Walk walk(wanted);
  for (int i = 0; i < schema.num_fields(); ++i)
    ARROW_RETURN_NOT_OK(walk.Add(*schema.field(i), schema.field(i)->name(), {i}));
  return std::move(walk.columns);
}

}  // namespace feedwater::server
