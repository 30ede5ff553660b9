// What tests of formats with columns share: opening, one field of one record, refusals.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/source/dataset_reader.h"

namespace feedwater::server {

class ColumnTest : public ::testing::Test {
 protected:
  ColumnTest() : opener_(folder_.path()) {}

  // A field's bytes in a record, or "error: ...".
  static std::string FieldOf(const Dataset& dataset, int64_t record, const std::string& name) {
    Record scratch;
    const absl::Status status = StatusOf(dataset, record, &scratch);
    if (!status.ok()) return absl::StrCat("error: ", status.message());
    for (size_t i = 0; i < dataset.fields().size(); ++i) {
      if (dataset.fields()[i].name != name) continue;
      return {reinterpret_cast<const char*>(scratch.fields[i].data), scratch.fields[i].bytes()};
    }
    return "error: no such field";
  }
  template <typename T>
  static std::vector<T> Numbers(const Dataset& dataset, int64_t record, const std::string& name) {
    const std::string bytes = FieldOf(dataset, record, name);
    EXPECT_EQ(bytes.size() % sizeof(T), 0u) << bytes;
    EXPECT_NE(bytes.rfind("error", 0), 0u) << bytes;
    std::vector<T> numbers(bytes.size() / sizeof(T));
    if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
    return numbers;
  }
  static Shape ShapeOf(const Dataset& dataset, int64_t record, const std::string& name) {
    Record scratch;
    const absl::Status status = StatusOf(dataset, record, &scratch);
    EXPECT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < scratch.fields.size(); ++i) {
      if (dataset.fields()[i].name == name) return scratch.fields[i].spec.shape;
    }
    ADD_FAILURE() << "no field " << name;
    return {};
  }
  // Whether a record can be read, and why not.
  static absl::Status StatusOf(const Dataset& dataset, int64_t record) {
    Record scratch;
    return StatusOf(dataset, record, &scratch);
  }
  // "int64[]", or "none" where there is no such field.
  static std::string TypeOf(const Dataset& dataset, const std::string& name) {
    for (const FieldSpec& field : dataset.fields()) {
      if (field.name == name) return field.spec.ToString();
    }
    return "none";
  }
  // "image uint8[?] encoded, label int64[]"
  static std::string Fields(const Dataset& dataset) {
    std::vector<std::string> fields;
    for (const FieldSpec& field : dataset.fields())
      fields.push_back(absl::StrCat(field.name, " ", field.spec.ToString()));
    return absl::StrJoin(fields, ", ");
  }
  void ExpectRefused(const std::string& yaml, const std::vector<std::string>& words,
                     absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::Status status = opener_.Open(yaml).status();
    EXPECT_EQ(status.code(), code) << yaml << ": " << status;
    for (const std::string& word : words)
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(word)) << yaml;
  }

  TempFolder folder_;
  Opener opener_;

 private:
  static absl::Status StatusOf(const Dataset& dataset, int64_t record, Record* out) {
    return ParseBytes(dataset, record, bytes_ = ReadExtents(dataset, record), out);
  }

  static inline std::vector<std::string> bytes_;  // what the last record's fields lie in
};

}  // namespace feedwater::server
