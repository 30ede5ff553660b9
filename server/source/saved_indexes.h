// The folder of saved indexes. Whoever may send a pipeline's text can name ever new datasets, so
// the folder is bounded: the indexes that were unused for longest go first, and are built again
// when somebody wants them.
#pragma once

#include <cstdint>
#include <string>

#include "server/source/index_file.h"

namespace feedwater::server {

// In the notes of a dataset whose index was not saved, since a file of it may be being written.
inline constexpr char kIndexNotSaved[] = "the index is not saved";

struct SavedIndexLimits {
  size_t files = 1024;
  int64_t bytes = int64_t{16} << 30;
};

// Writes `file` and makes room for it. A failure is logged: the next start builds the index again.
void SaveIndexInFolder(const Index& index, const std::string& file,
                       const SavedIndexLimits& limits = {});

// It was used just now.
void TouchSavedIndex(const std::string& file);

}  // namespace feedwater::server
