#include "server/source/tar_writer.h"

#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

constexpr int64_t kMostPaddingShare = 20;  // padding is at most a 20th of the record behind it

void AppendHeader(absl::string_view name, int64_t bytes, char type, std::string* archive) {
  char block[kTarBlock] = {};
  std::memcpy(block, name.data(), name.size());
  const auto octal = [&](size_t at, size_t width, int64_t number) {
    std::snprintf(block + at, width, "%0*llo", static_cast<int>(width - 1),
                  static_cast<unsigned long long>(number));
  };
  octal(100, 8, 0644);    // mode
  octal(108, 8, 0);       // user
  octal(116, 8, 0);       // group
  octal(124, 12, bytes);  // size
  octal(136, 12, 0);      // time
  std::memset(block + 148, ' ', 8);
  block[156] = type;
  std::memcpy(block + 257, "ustar\00000", 8);
  octal(329, 8, 0);  // device
  octal(337, 8, 0);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  std::snprintf(block + 148, 7, "%06o", sum);  // then a NUL and the space
  archive->append(block, kTarBlock);
}

}  // namespace

void AppendTarHeader(absl::string_view name, int64_t bytes, std::string* archive) {
  AppendHeader(name, bytes, '0', archive);
}

void FinishTarMember(std::string* archive) {
  const size_t over = archive->size() % kTarBlock;
  if (over > 0) archive->append(kTarBlock - over, '\0');
}

int64_t TarPadding(int64_t offset, int64_t record_bytes) {
  const int64_t over = offset % kTarAlignment;
  if (over == 0) return 0;
  int64_t padding = kTarAlignment - over;
  if (padding < 2 * kTarBlock) padding += kTarAlignment;  // a header and its text take two blocks
  return padding <= record_bytes / kMostPaddingShare ? padding : 0;
}

void AppendTarPadding(int64_t bytes, std::string* archive) {
  const int64_t text = bytes - kTarBlock;
  AppendHeader("pax_global_header", text, 'g', archive);
  const std::string begin = absl::StrCat(text, " comment=");
  archive->append(begin);
  archive->append(static_cast<size_t>(text) - begin.size() - 1, ' ');
  archive->push_back('\n');
}

void AppendTarEnd(std::string* archive) { archive->append(kTarEndBytes, '\0'); }

}  // namespace feedwater::server
