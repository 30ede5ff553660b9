#include "tests/testing/fake_dataset.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/source/format.h"

namespace feedwater::testing {

using server::DType;
using server::Extent;
using server::Layout;
using server::Record;
using server::Tensor;
using server::TensorSpec;

FakeDataset::FakeDataset(Options options)
    : options_(std::move(options)), digest_(absl::StrCat("fake-", options_.records)) {
  std::string content;
  const int64_t stored = options_.stored_records < 0 ? options_.records : options_.stored_records;
  for (int64_t record = 0; record < stored; ++record) {
    for (int64_t i = 0; i < options_.record_bytes; ++i) {
      content.push_back(static_cast<char>(ByteOf(record, i)));
    }
  }
  folder_.Write("records.bin", content);
  root_ = *folder_.AsRoot()->Find("root");
  TensorSpec data{DType::kUInt8, Layout::kPlain, {options_.record_bytes}};
  if (options_.is_image) data = {DType::kUInt8, Layout::kHWC, {1, options_.record_bytes / 3, 3}};
  if (options_.is_text) data = data.WithRows(-1);
  fields_.push_back({"data", data, "bytes"});
  fields_.push_back({"label", TensorSpec{DType::kInt64, Layout::kPlain, {}}, "number times 10"});
}

void FakeDataset::AwaitClockTick() const {
  int64_t unsettled_until_ns = 0;
  EXPECT_TRUE(server::StampNow(*root_, "records.bin", &unsettled_until_ns).ok());
}

void FakeDataset::Extents(int64_t record, std::vector<Extent>* extents) const {
  extents->push_back({0, record * options_.record_bytes, options_.record_bytes});
}

absl::Status FakeDataset::Parse(int64_t record, absl::Span<const absl::Span<const std::byte>> bytes,
                                Record* out) const {
  if (options_.parse) FW_RETURN_IF_ERROR(options_.parse(record));
  if (bytes.size() != 1 || bytes[0].size() != static_cast<size_t>(options_.record_bytes)) {
    return absl::DataLossError("wrong number of bytes");
  }
  out->inline_values.assign(1, record * 10);
  out->fields.clear();
  TensorSpec data = fields_[0].spec;
  if (options_.is_text) data = data.WithRows(record == 0 ? 0 : options_.record_bytes);
  out->fields.push_back(Tensor{data, const_cast<std::byte*>(bytes[0].data())});
  out->fields.push_back(
      Tensor{fields_[1].spec, reinterpret_cast<std::byte*>(out->inline_values.data())});
  return absl::OkStatus();
}

}  // namespace feedwater::testing
