// Files that are compressed as a whole, with gzip or zstd: what they unpack to.
#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/base/status.h"

namespace feedwater::server {

// Whether a file's name says that it is compressed as a whole, and its name when it is unpacked:
// "a.tar" of "a.tar.gz", "a.tgz" and "a.tar.zst".
bool IsPackedName(absl::string_view name, std::string* unpacked);

// Appends what the open file unpacks to, from where it stands. Its `name` says how it is
// compressed; `what` is its name in messages. `goes_on` is asked before each read.
// InvalidArgument: damaged, or cut off.
absl::Status UnpackFile(int file, absl::string_view name, const std::string& what,
                        const std::function<absl::Status(absl::string_view bytes)>& append,
                        const std::function<absl::Status()>& goes_on);

}  // namespace feedwater::server
