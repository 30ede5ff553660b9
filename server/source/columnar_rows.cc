#include "server/source/columnar_rows.h"

#include <algorithm>

namespace feedwater::server {
namespace {

constexpr int64_t kMaxBytes = kMaxRowBytes;

void PutText(absl::string_view text, std::string* out) {
  PutNumber(static_cast<uint32_t>(text.size()), out);
  out->append(text.data(), text.size());
}

// 0: no type that is staged.
int64_t SizeOf(DType dtype) {
  return dtype == DType::kBFloat16 ? 0 : static_cast<int64_t>(DTypeSize(dtype));
}

}  // namespace

bool StagedBytes(const ColumnSpec& spec, int64_t* bytes, int64_t* row_bytes) {
  int64_t product = SizeOf(spec.dtype);
  if (product == 0 || spec.shape.size() > kMaxColumnarAxes) return false;
  const bool is_open = !spec.shape.empty() && spec.shape[0] == -1;
  for (size_t axis = is_open ? 1 : 0; axis < spec.shape.size(); ++axis) {
    if (spec.shape[axis] < 0 || __builtin_mul_overflow(product, spec.shape[axis], &product) ||
        product > kMaxBytes) {
      return false;
    }
  }
  *bytes = is_open ? -1 : product;
  *row_bytes = product;
  return true;
}

std::string EncodeColumns(const std::vector<ColumnarColumn>& columns) {
  std::string out;
  PutNumber(static_cast<uint32_t>(columns.size()), &out);
  for (const ColumnarColumn& column : columns) {
    PutText(column.spec.name, &out);
    PutText(column.type, &out);
    PutText(column.trouble, &out);
    PutNumber(static_cast<uint8_t>(column.spec.kind), &out);
    PutNumber(static_cast<uint8_t>(column.spec.dtype), &out);
    PutNumber(static_cast<uint8_t>(column.is_staged), &out);
    PutNumber(static_cast<uint8_t>(column.spec.shape.size()), &out);
    for (const int64_t axis : column.spec.shape) PutNumber(axis, &out);
  }
  return out;
}

bool DecodeColumns(absl::string_view bytes, std::vector<ColumnarColumn>* columns) {
  BytesReader reader(bytes);
  const auto count = reader.Number<uint32_t>();
  if (!reader.good() || count > kMaxColumnarColumns) return false;
  columns->clear();
  for (uint32_t i = 0; i < count; ++i) {
    ColumnarColumn column;
    column.spec.name = std::string(reader.Text());
    column.type = std::string(reader.Text());
    column.trouble = std::string(reader.Text());
    const auto kind = reader.Number<uint8_t>();
    column.spec.dtype = static_cast<DType>(reader.Number<uint8_t>());
    column.is_staged = reader.Number<uint8_t>() != 0;
    const auto axes = reader.Number<uint8_t>();
    if (!reader.good() || kind > static_cast<uint8_t>(ColumnSpec::Kind::kBytes) ||
        axes > kMaxColumnarAxes) {
      return false;
    }
    column.spec.kind = static_cast<ColumnSpec::Kind>(kind);
    for (uint8_t axis = 0; axis < axes; ++axis)
      column.spec.shape.push_back(reader.Number<int64_t>());
    if (!reader.good()) return false;
    int64_t fixed = 0, row = 0;
    const bool is_plain = column.spec.is_numeric() ||
                          (column.spec.dtype == DType::kUInt8 && column.spec.shape == Shape{-1});
    const bool is_readable = column.trouble.empty();
    if (is_readable && (!is_plain || !StagedBytes(column.spec, &fixed, &row))) return false;
    if (!is_readable && column.is_staged) return false;
    columns->push_back(std::move(column));
  }
  return reader.at_end();
}

std::string EncodeRequest(const ColumnarRequest& request) {
  std::string out;
  PutNumber(static_cast<uint8_t>(request.is_parquet), &out);
  PutNumber(static_cast<uint8_t>(request.wants_all), &out);
  PutNumber(request.file_bytes, &out);
  PutNumber(request.memory_bytes, &out);
  PutNumber(static_cast<uint32_t>(request.wanted.size()), &out);
  for (const std::string& name : request.wanted) PutText(name, &out);
  return out;
}

bool DecodeRequest(absl::string_view bytes, ColumnarRequest* request) {
  BytesReader reader(bytes);
  request->is_parquet = reader.Number<uint8_t>() != 0;
  request->wants_all = reader.Number<uint8_t>() != 0;
  request->file_bytes = reader.Number<uint64_t>();
  request->memory_bytes = reader.Number<uint64_t>();
  const auto count = reader.Number<uint32_t>();
  for (uint32_t i = 0; i < count && reader.good(); ++i) request->wanted.emplace_back(reader.Text());
  return reader.good() && reader.at_end();
}

}  // namespace feedwater::server
