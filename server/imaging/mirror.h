// How images go on beyond their edges where they are mirrored.
#pragma once

namespace feedwater::server {

// A place beside an axis of n, mirrored into it; the edge itself stands once.
inline int Mirrored(int i, int n) {
  if (n <= 1) return 0;
  const int period = 2 * (n - 1);
  i = ((i % period) + period) % period;
  return i < n ? i : period - i;
}

}  // namespace feedwater::server
