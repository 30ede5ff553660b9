// The sample file: every key with its default and its description.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/service/config.h"

namespace feedwater::server {
namespace {

// Keys whose default depends on the machine, or that have none, and what the sample shows for them.
std::string SampleValue(const ParamInfo& param) {
  if (param.name == "version") return absl::StrCat(kConfigVersion);
  // A daemon starts with the file as it is printed: nothing is named that has to be made first.
  if (param.name == "pipelines") return "[]";
  if (param.name == "roots") return "{}";
  if (param.name == "runtime_dir") return "/run/feedwater/0";
  if (param.name == "state_dir") return "/var/lib/feedwater/0";
  return param.default_text;
}

// In a sentence, since a line of its own would be one to be switched on.
std::string SampleSentence(const ParamInfo& param) {
  if (param.name == "pipelines") return " Such as `[pipelines]`, or `[]`: none.";
  if (param.name == "roots") return " Such as `{photos: /data/photos}`, or `{}`: none.";
  return "";
}

void AppendComment(const std::string& text, const std::string& indent, std::string* out) {
  constexpr size_t kWidth = 98;
  std::string line;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!line.empty() && indent.size() + 3 + line.size() + word.size() > kWidth) {
      absl::StrAppend(out, indent, "# ", line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  if (!line.empty()) absl::StrAppend(out, indent, "# ", line, "\n");
}

void AppendParam(const ParamInfo& param, const std::string& indent, std::string* out) {
  std::string doc = param.doc;
  if (!param.choices.empty())
    absl::StrAppend(&doc, " One of: ", absl::StrJoin(param.choices, ", "), ".");
  if (param.low && param.high && *param.low != *param.high) {
    absl::StrAppend(&doc, " ", param.low_text, " to ", param.high_text, ".");
  } else if (param.low && !param.high) {
    absl::StrAppend(&doc, " At least ", param.low_text, ".");
  }
  if (param.required) absl::StrAppend(&doc, " Required.", SampleSentence(param));
  AppendComment(doc, indent, out);
  if (param.nested.empty()) {
    absl::StrAppend(out, indent, param.required ? "" : "# ", param.name, ": ", SampleValue(param),
                    "\n");
    return;
  }
  absl::StrAppend(out, indent, param.name, ":\n");
  for (const ParamInfo& member : param.nested) AppendParam(member, indent + "  ", out);
}

}  // namespace

std::string SampleConfig() {
  std::string out =
      "# yaml-language-server: $schema=schema/feedwater.schema.json\n"
      "# feedwater.yaml: the configuration of feedwaterd. Written by `feedwaterd --print-config`: "
      "every key with its\n"
      "# description; a line that is commented out shows the default.\n"
      "#\n"
      "# Sizes are written 512MiB or 8GiB, times 500ms or 60s. An unknown key is an error. Check a "
      "file with\n"
      "#   feedwaterd --config feedwater.yaml --check\n";
  for (const ParamInfo& param : ConfigSchema().params()) {
    absl::StrAppend(&out, "\n");
    AppendParam(param, "", &out);
  }
  return out;
}

}  // namespace feedwater::server
