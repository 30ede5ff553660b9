// Tar archives for tests, written as POSIX.1 says, member by member.
#pragma once

#include <cstdio>
#include <cstring>
#include <string>

namespace feedwater::server {

// One member: its header and its bytes, padded to blocks of 512.
inline std::string TarMemberText(const std::string& name, const std::string& bytes,
                                 char type = '0') {
  std::string header(512, '\0');
  std::memcpy(header.data(), name.data(), std::min<size_t>(name.size(), 100));
  std::snprintf(&header[100], 8, "%07o", 0644);
  std::snprintf(&header[108], 8, "%07o", 0);
  std::snprintf(&header[116], 8, "%07o", 0);
  std::snprintf(&header[124], 12, "%011zo", bytes.size());
  std::snprintf(&header[136], 12, "%011o", 0);
  header[156] = type;
  std::memcpy(&header[257], "ustar", 6);
  std::memcpy(&header[263], "00", 2);
  std::memset(&header[148], ' ', 8);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(&header[148], 8, "%06o", sum);
  return header + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}

inline std::string TarEnd() { return std::string(1024, '\0'); }

}  // namespace feedwater::server
