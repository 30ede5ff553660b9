// The columns of an Arrow schema as the daemon knows them: by dotted path, with what a record holds
// of each, or why none can be read.
#pragma once

#include <arrow/api.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "server/source/columnar_rows.h"

namespace feedwater::server {

// A column and the way to it: the number of a field, and those of the struct's children below it.
struct WalkedColumn {
  ColumnarColumn column;
  std::vector<int> path;
};

// A number's type in the rows; false: `type` is no number that is staged.
bool NumberOf(const arrow::DataType& type, DType* dtype);
// Without the extension types around it.
const arrow::DataType& StorageOf(const arrow::DataType& type);

// Which columns a request asks for.
class Wanted {
 public:
  explicit Wanted(const ColumnarRequest& request)
      : wants_all_(request.wants_all), names_(request.wanted.begin(), request.wanted.end()) {}
  bool operator()(const std::string& name) const { return wants_all_ || names_.count(name) > 0; }

 private:
  const bool wants_all_;
  const std::unordered_set<std::string> names_;
};

// All columns, in order; `is_staged` of those that are wanted and can be read. Invalid: two of one
// name, too many, or too deep.
arrow::Result<std::vector<WalkedColumn>> WalkColumns(const arrow::Schema& schema,
                                                     const Wanted& wanted);

}  // namespace feedwater::server
