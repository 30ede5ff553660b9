// The members of a zip archive, from its central directory (PKWARE's APPNOTE.TXT, with ZIP64).
// Written here because members are read at their offsets, which is all that is asked of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/base/status.h"
#include "server/storage/roots.h"

namespace feedwater::server {

struct ZipMember {
  std::string name;
  bool is_compressed = false;
  int64_t begin = 0, bytes = 0;  // of what is stored in the archive
};

// InvalidArgument that names the file: no archive, damaged, encrypted, or of more than ten
// thousand members.
absl::StatusOr<std::vector<ZipMember>> ListZip(const Root& root, const std::string& path,
                                               int64_t file_bytes);

}  // namespace feedwater::server
