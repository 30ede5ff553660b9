// NumPy array files for tests, version 1.0, written as numpy.lib.format describes them.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace feedwater::server {

inline std::string NpyText(const std::string& descr, const std::string& shape,
                           const std::string& elements, const std::string& fortran = "False") {
  std::string header = absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", fortran,
                                    ", 'shape': ", shape, ", }");
  header.append((64 - (10 + header.size() + 1) % 64) % 64, ' ');
  header += '\n';
  std::string text("\x93NUMPY\1\0", 8);
  text += static_cast<char>(header.size() & 0xff);
  text += static_cast<char>(header.size() >> 8);
  return text + header + elements;
}

}  // namespace feedwater::server
