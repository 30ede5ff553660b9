#include "client/cli/help_format.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/text.h"

namespace feedwater::cli {
namespace {

// For a column that begins at `left`; CLI11 indents the lines after the first.
std::string InColumn(const std::string& text, size_t left) {
  const std::string indented = Wrapped(text, left);
  std::string out;
  for (absl::string_view line : absl::StrSplit(absl::StripSuffix(indented, "\n"), '\n'))
    absl::StrAppend(&out, out.empty() ? "" : "\n", line.substr(std::min(left, line.size())));
  return out;
}

}  // namespace

std::string HelpFormat::make_description(const CLI::App* app) const {
  return Wrapped(absl::StripSuffix(CLI::Formatter::make_description(app), "\n"), 0);
}

std::string HelpFormat::make_footer(const CLI::App* app) const {
  std::string out;
  for (absl::string_view line : absl::StrSplit(app->get_footer(), '\n'))
    absl::StrAppend(&out,
                    absl::StartsWith(line, " ") ? absl::StrCat(line, "\n") : Wrapped(line, 0));
  return app->get_footer().empty() ? "" : out;
}

std::string HelpFormat::make_subcommand(const CLI::App* sub) const {
  std::stringstream out;
  CLI::detail::format_help(out, sub->get_display_name(true),
                           InColumn(sub->get_description(), kNameColumns), kNameColumns);
  return out.str();
}

std::string HelpFormat::make_option_desc(const CLI::Option* option) const {
  return InColumn(CLI::Formatter::make_option_desc(option), kNameColumns);
}

}  // namespace feedwater::cli
