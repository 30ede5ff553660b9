// Writes the rows of record batches as columnar_rows.h says.
#pragma once

#include <arrow/api.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/columnar/column_walk.h"

namespace feedwater::server {

class RowWriter {
 public:
  using Write = std::function<arrow::Status(const std::string& bytes)>;
  // `columns`: those to be staged, in order. `write` gets many rows at once.
  RowWriter(std::vector<ColumnarColumn> columns, Write write)
      : columns_(std::move(columns)), write_(std::move(write)) {}

  // Writes the rows of a batch whose schema holds the columns, and perhaps others. Invalid: the
  // batch's arrays do not fit together, or a row is too large.
  arrow::Status Add(const arrow::RecordBatch& batch);
  arrow::Status Flush();
  uint64_t rows() const { return rows_; }

 private:
  const std::vector<ColumnarColumn> columns_;
  const Write write_;
  std::string buffer_;
  uint64_t rows_ = 0;
};

}  // namespace feedwater::server
