// What the C library's heaps hold of the machine's memory.
#pragma once

#include <cstdint>

namespace feedwater::server {

int64_t ResidentBytes();  // of this process at this moment; 0 where that is not known

// Gives what is free in the heaps back to the system: after something large. Takes milliseconds.
void ReturnFreeMemory();

}  // namespace feedwater::server
