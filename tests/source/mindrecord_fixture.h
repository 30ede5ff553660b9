// Datasets of MindRecord files that are written by hand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/source/column_testing.h"
#include "tests/source/mindrecord_text.h"

namespace feedwater::server {

class MindRecordTest : public ColumnTest {
 protected:
  static constexpr char kYaml[] = "{format: mindrecord, root: root, path: d}";

  static std::string Yaml(const std::string& more) {
    return absl::StrCat("{format: mindrecord, root: root, path: d, ", more, "}");
  }
  void Write(const MindRecordText& file, const std::string& name = "a.mindrecord") {
    folder_.Write("d/" + name, file.text());
  }
  // Rows of one column `label`, without blobs.
  static MindRecordText Labels(const std::vector<int>& labels) {
    MindRecordText file;
    file.schema = {{"label", {{"type", "int64"}}}};
    for (const int label : labels)
      file.rows.emplace_back(MindRecordMap({{"label", label}}), std::string(4, '\0'));
    return file;
  }
  // One blob column of a type, and its one value.
  static MindRecordText Blob(const nlohmann::json& type, const std::string& blob,
                             const std::string& version = "3.0") {
    MindRecordText file;
    file.schema = {{"x", type}};
    file.blob_fields = {"x"};
    file.version = version;
    file.rows.emplace_back(MindRecordMap({{"id", 0}}), blob);
    return file;
  }
  std::vector<int64_t> AllLabels(const std::string& yaml = kYaml) {
    const auto dataset = opener_.MustOpen(yaml);
    std::vector<int64_t> labels;
    for (int64_t i = 0; dataset != nullptr && i < dataset->size(); ++i)
      labels.push_back(Numbers<int64_t>(*dataset, i, "label")[0]);
    return labels;
  }
};

}  // namespace feedwater::server
