// What the kernel counts of a process's memory. Internal to decoder.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace feedwater::server {

int64_t MappedBytes(pid_t pid);  // for RLIMIT_AS; 0 where that is not known
int64_t DataBytes(pid_t pid);    // for RLIMIT_DATA; 0 where that is not known

}  // namespace feedwater::server
