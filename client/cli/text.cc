#include "client/cli/text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace feedwater::cli {

size_t TextColumns() {
  constexpr size_t kMost = 100, kLeast = 40;
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
      size.ws_col == 0) {
    return kMost;
  }
  return std::clamp<size_t>(size.ws_col, kLeast, kMost);
}

std::string Wrapped(absl::string_view text, size_t indent) {
  const size_t columns = TextColumns();
  std::string out;
  for (absl::string_view paragraph : absl::StrSplit(text, '\n')) {
    std::string line(indent, ' ');
    for (absl::string_view word : absl::StrSplit(paragraph, ' ', absl::SkipEmpty())) {
      const bool is_first = line.size() == indent;
      if (!is_first && line.size() + 1 + word.size() > columns) {
        absl::StrAppend(&out, line, "\n");
        line.assign(indent, ' ');
      }
      absl::StrAppend(&line, line.size() == indent ? "" : " ", word);
    }
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

std::string StepLines(absl::string_view first, absl::string_view step) {
  if (first.size() + step.size() <= TextColumns()) return absl::StrCat(first, step, "\n");
  const std::string spaced = absl::StrReplaceAll(step, {{"+", " + "}});
  return Wrapped(spaced, first.size() + 2).replace(0, first.size() + 2, std::string(first));
}

std::string Padded(absl::string_view text, size_t width) {
  std::string padded(text);
  if (padded.size() < width) padded.append(width - padded.size(), ' ');
  return padded;
}

std::string InOneLine(const server::YamlNode& node) {
  if (node.is_scalar()) return node.scalar;
  std::vector<std::string> parts;
  for (const server::YamlNode& item : node.items) parts.push_back(InOneLine(item));
  for (const auto& [key, value] : node.entries) {
    parts.push_back(absl::StrCat(key.scalar, ": ", InOneLine(value)));
  }
  const std::string text = absl::StrJoin(parts, ", ");
  return node.is_list() ? absl::StrCat("[", text, "]") : text;
}

}  // namespace feedwater::cli
