// The program feedwater-columnar, which unpacks a file of Arrow or Parquet in a process that can
// reach nothing but that file: libarrow is large and reads foreign bytes. It is built where pyarrow
// was found. What it writes is believed to be columns and rows (columnar_rows.h) and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/base/child_program.h"
#include "server/base/status.h"
#include "server/source/columnar_rows.h"
#include "server/source/staging.h"

namespace feedwater::server {

class ColumnarProgram {
 public:
  // FailedPrecondition, with where to get it, where it is not installed. `format` needs it.
  static absl::StatusOr<ColumnarProgram> Find(const std::string& format);
  explicit ColumnarProgram(std::shared_ptr<const ChildProgram> program)
      : program_(std::move(program)) {}

  // How long it may stand still without having worked, and work without having written.
  struct Patience {
    double still_seconds = 60, working_seconds = 600;
  };
  void SetPatience(Patience patience) { patience_ = patience; }

  // Unpacks the open `file`, which `what` names, and gives `append` columns and rows as they are
  // staged. `goes_on` is asked several times a second. InvalidArgument: the file is damaged, is no
  // such file, or has brought the process to its end; StorageError: it could not be read;
  // ResourceExhausted: it needs more memory than the request says, or the machine has no process.
  // It has ended when this returns.
  absl::Status Unpack(const ColumnarRequest& request, int file, const std::string& what,
                      const StagedFolder::Append& append,
                      const std::function<absl::Status()>& goes_on) const;

 private:
  std::shared_ptr<const ChildProgram> program_;
  Patience patience_;
};

// The memory that unpacking a file of so many bytes may take: much of it is in row groups and
// record batches, which are read one by one.
int64_t ColumnarMemory(int64_t file_bytes);

}  // namespace feedwater::server
