// Who reads which unpacked file of a staged folder: each file has a byte of the folder's kHeld,
// which its readers lock. The kernel drops the locks when a process ends.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace feedwater::server {

inline constexpr char kHeld[] = ".held";

// Locks a file's byte, F_RDLCK to read the file and F_WRLCK to remove it; F_UNLCK undoes it.
// `held`: the folder's kHeld. False: with errno. The lock belongs to the open file, as flock's
// does.
bool LockByte(int held, absl::string_view name, int16_t type);

// Whether somebody else reads any file of the folder.
bool IsRead(int held);

}  // namespace feedwater::server
