#include "server/columnar/row_writer.h"

#include <cstring>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace feedwater::server {
namespace {

using arrow::Array;
using arrow::Type;

constexpr size_t kFlushBytes = 1 << 20;

std::shared_ptr<Array> Storage(std::shared_ptr<Array> array) {
  while (array->type_id() == Type::EXTENSION)
    array = static_cast<const arrow::ExtensionArray&>(*array).storage();
  return array;
}

bool HasNull(const Array& array, int64_t start, int64_t count) {
  if (array.null_count() == 0) return false;
  for (int64_t i = start; i < start + count; ++i) {
    if (array.IsNull(i)) return true;
  }
  return false;
}

arrow::Status TooLarge(int64_t count) {
  return arrow::Status::Invalid("has ", count, " numbers in a row, more than a record may have (",
                                kMaxRowBytes >> 20, " MiB)");
}

// Elements of an array of numbers.
class Values {
 public:
  virtual ~Values() = default;
  // Appends elements `start` to `start + count` - 1, which are there.
  virtual arrow::Status Append(int64_t start, int64_t count, std::string* out,
                               RowState* state) const = 0;
};

class NumberValues final : public Values {
 public:
  explicit NumberValues(std::shared_ptr<Array> array) : array_(std::move(array)) {
    width_ =
        array_->type_id() == Type::BOOL ? 1 : static_cast<int64_t>(array_->type()->bit_width() / 8);
    const auto& buffer = array_->data()->buffers[1];
    data_ = buffer == nullptr ? nullptr : buffer->data();
  }
  arrow::Status Append(int64_t start, int64_t count, std::string* out,
                       RowState* state) const override {
    if (count > kMaxRowBytes) return TooLarge(count);
    if (HasNull(*array_, start, count)) {
      *state = RowState::kNullInside;
      return arrow::Status::OK();
    }
    if (count == 0) return arrow::Status::OK();
    if (data_ == nullptr) return arrow::Status::Invalid("has an array without its numbers");
    const uint8_t* at = data_ + (array_->offset() + start) * width_;
    switch (array_->type_id()) {
      case Type::BOOL:
        for (int64_t i = start; i < start + count; ++i)
          out->push_back(static_cast<const arrow::BooleanArray&>(*array_).Value(i) ? 1 : 0);
        break;
      case Type::UINT32:
        for (int64_t i = 0; i < count; ++i) {
          uint32_t number = 0;
          std::memcpy(&number, at + i * 4, sizeof(number));
          PutNumber(static_cast<int64_t>(number), out);
        }
        break;
      case Type::UINT64:
        for (int64_t i = 0; i < count; ++i) {
          uint64_t number = 0;
          std::memcpy(&number, at + i * 8, sizeof(number));
          if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
            *state = RowState::kTooLarge;
          PutNumber(static_cast<int64_t>(number), out);
        }
        break;
      default:
        out->append(reinterpret_cast<const char*>(at), static_cast<size_t>(count * width_));
    }
    return arrow::Status::OK();
  }

 private:
  const std::shared_ptr<Array> array_;
  const uint8_t* data_ = nullptr;
  int64_t width_ = 0;
};

class DictionaryValues final : public Values {
 public:
  explicit DictionaryValues(std::shared_ptr<Array> array)
      : array_(std::move(array)),
        words_(Storage(static_cast<const arrow::DictionaryArray&>(*array_).dictionary())),
        values_(words_) {}
  arrow::Status Append(int64_t start, int64_t count, std::string* out,
                       RowState* state) const override {
    if (count > kMaxRowBytes) return TooLarge(count);
    for (int64_t i = start; i < start + count; ++i) {
      if (array_->IsNull(i)) {
        *state = RowState::kNullInside;
        return arrow::Status::OK();
      }
      const int64_t word = static_cast<const arrow::DictionaryArray&>(*array_).GetValueIndex(i);
      ARROW_RETURN_NOT_OK(values_.Append(word, 1, out, state));
    }
    return arrow::Status::OK();
  }

 private:
  const std::shared_ptr<Array> array_, words_;
  const NumberValues values_;
};

std::unique_ptr<Values> ValuesOf(std::shared_ptr<Array> given);

// Lists of one length.
class ListValues final : public Values {
 public:
  explicit ListValues(std::shared_ptr<Array> array)
      : array_(std::move(array)), items_(ValuesOf(list().values())) {}
  arrow::Status Append(int64_t start, int64_t count, std::string* out,
                       RowState* state) const override {
    const int64_t size = list().list_type()->list_size();
    if (size > 0 && count > kMaxRowBytes / size) return TooLarge(count);
    if (HasNull(*array_, start, count)) {
      *state = RowState::kNullInside;
      return arrow::Status::OK();
    }
    return count == 0 ? arrow::Status::OK()
                      : items_->Append(list().value_offset(start), count * size, out, state);
  }

 private:
  const arrow::FixedSizeListArray& list() const {
    return static_cast<const arrow::FixedSizeListArray&>(*array_);
  }
  const std::shared_ptr<Array> array_;
  const std::unique_ptr<Values> items_;
};

std::unique_ptr<Values> ValuesOf(std::shared_ptr<Array> given) {
  std::shared_ptr<Array> array = Storage(std::move(given));
  if (array->type_id() == Type::FIXED_SIZE_LIST)
    return std::make_unique<ListValues>(std::move(array));
  if (array->type_id() == Type::DICTIONARY)
    return std::make_unique<DictionaryValues>(std::move(array));
  return std::make_unique<NumberValues>(std::move(array));
}

std::string_view BytesAt(const Array& array, int64_t i) {
  switch (array.type_id()) {
    case Type::STRING:
    case Type::BINARY:
      return static_cast<const arrow::BinaryArray&>(array).GetView(i);
    case Type::LARGE_STRING:
    case Type::LARGE_BINARY:
      return static_cast<const arrow::LargeBinaryArray&>(array).GetView(i);
    case Type::STRING_VIEW:
    case Type::BINARY_VIEW:
      return static_cast<const arrow::BinaryViewArray&>(array).GetView(i);
    default:
      return static_cast<const arrow::FixedSizeBinaryArray&>(array).GetView(i);
  }
}

// A column of one batch.
class BoundColumn {
 public:
  BoundColumn(const arrow::RecordBatch& batch, const WalkedColumn& walked) {
    std::shared_ptr<Array> array = Storage(batch.column(walked.path[0]));
    for (size_t i = 1; i < walked.path.size(); ++i) {
      const auto& parent = static_cast<const arrow::StructArray&>(*array);
      std::shared_ptr<Array> child = parent.field(walked.path[i]);
      parents_.push_back(std::move(array));
      array = Storage(std::move(child));
    }
    leaf_ = std::move(array);
    is_bytes_ = !walked.column.spec.is_numeric();
    is_list_ = leaf_->type_id() == Type::LIST || leaf_->type_id() == Type::LARGE_LIST;
    if (is_bytes_ || leaf_->type_id() == Type::DICTIONARY) {
      words_ = leaf_;
      if (leaf_->type_id() == Type::DICTIONARY)
        words_ = Storage(static_cast<const arrow::DictionaryArray&>(*leaf_).dictionary());
    }
    if (is_bytes_) return;
    if (leaf_->type_id() == Type::LIST) {
      values_ = ValuesOf(static_cast<const arrow::ListArray&>(*leaf_).values());
    } else if (leaf_->type_id() == Type::LARGE_LIST) {
      values_ = ValuesOf(static_cast<const arrow::LargeListArray&>(*leaf_).values());
    } else {
      values_ = ValuesOf(leaf_);
    }
  }

  arrow::Status Append(int64_t row, std::string* out, RowState* state) const {
    *state = RowState::kNull;
    for (const auto& parent : parents_) {
      if (parent->IsNull(row)) return arrow::Status::OK();
    }
    if (leaf_->IsNull(row)) return arrow::Status::OK();
    int64_t at = row;
    if (leaf_->type_id() == Type::DICTIONARY) {
      at = static_cast<const arrow::DictionaryArray&>(*leaf_).GetValueIndex(row);
      if (words_->IsNull(at)) return arrow::Status::OK();
    }
    *state = RowState::kValue;
    if (is_bytes_) {
      const std::string_view bytes = BytesAt(*words_, at);
      if (bytes.size() > kMaxRowBytes) return TooLarge(static_cast<int64_t>(bytes.size()));
      PutNumber(static_cast<uint32_t>(bytes.size()), out);
      out->append(bytes.data(), bytes.size());
      return arrow::Status::OK();
    }
    const size_t before = out->size();
    int64_t start = row, count = 1;
    if (is_list_) {
      if (leaf_->type_id() == Type::LIST) {
        const auto& list = static_cast<const arrow::ListArray&>(*leaf_);
        start = list.value_offset(row);
        count = list.value_length(row);
      } else {
        const auto& list = static_cast<const arrow::LargeListArray&>(*leaf_);
        start = list.value_offset(row);
        count = list.value_length(row);
      }
      if (count > kMaxRowBytes) return TooLarge(count);
      PutNumber(static_cast<uint32_t>(count), out);
    }
    ARROW_RETURN_NOT_OK(values_->Append(start, count, out, state));
    if (*state != RowState::kValue) out->resize(before);
    return arrow::Status::OK();
  }

 private:
  std::vector<std::shared_ptr<Array>> parents_;
  std::shared_ptr<Array> leaf_, words_;
  bool is_bytes_ = false, is_list_ = false;
  std::unique_ptr<Values> values_;
};

}  // namespace

arrow::Status RowWriter::Add(const arrow::RecordBatch& batch) {
  // Offsets and indices may be any in a file.
  ARROW_RETURN_NOT_OK(batch.ValidateFull());
  ColumnarRequest all;
  all.wants_all = true;
  const Wanted wanted(all);
  ARROW_ASSIGN_OR_RAISE(const std::vector<WalkedColumn> there,
                        WalkColumns(*batch.schema(), wanted));
  std::unordered_map<std::string, const WalkedColumn*> by_name;
  for (const WalkedColumn& walked : there) by_name[walked.column.spec.name] = &walked;
  std::vector<BoundColumn> bound;
  for (const ColumnarColumn& column : columns_) {
    const auto found = by_name.find(column.spec.name);
    if (found == by_name.end() || !(found->second->column.spec == column.spec))
      return arrow::Status::Invalid("has no column '", column.spec.name, "' in a part of it");
    bound.emplace_back(batch, *found->second);
  }
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    const size_t begin = buffer_.size();
    PutNumber(uint32_t{0}, &buffer_);
    const size_t states = buffer_.size();
    buffer_.append(bound.size(), '\0');
    for (size_t i = 0; i < bound.size(); ++i) {
      RowState state = RowState::kNull;
      const arrow::Status added = bound[i].Append(row, &buffer_, &state);
      if (!added.ok())
        return added.WithMessage("column '", columns_[i].spec.name, "' ", added.message());
      buffer_[states + i] = static_cast<char>(state);
      if (buffer_.size() - states > kMaxRowBytes) {
        return arrow::Status::Invalid("has more than ", kMaxRowBytes >> 20, " MiB in row ", rows_,
                                      ", more than a record may have");
      }
    }
    const auto length = static_cast<uint32_t>(buffer_.size() - states);
    std::memcpy(&buffer_[begin], &length, sizeof(length));
    ++rows_;
    if (buffer_.size() >= kFlushBytes) ARROW_RETURN_NOT_OK(Flush());
  }
  return arrow::Status::OK();
}

arrow::Status RowWriter::Flush() {
  ARROW_RETURN_NOT_OK(write_(buffer_));
  if (buffer_.capacity() > 8 * kFlushBytes) buffer_.shrink_to_fit();
  buffer_.clear();
  return arrow::Status::OK();
}

}  // namespace feedwater::server
