// The parameters of a plug-in's op: declared at run time, and read, checked and written as those of
// a built-in op (base/schema.h) are. Immutable and thread-safe.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "proto/plugin/feedwater/plugin.h"
#include "server/base/schema.h"

namespace feedwater::server {

// By feedwater_param::kind.
using PluginValue = std::variant<double, int64_t, std::string, std::vector<double>, bool>;

class PluginParam {
 public:
  // InvalidArgument "parameter 'p': ..." where the declaration makes no sense.
  static absl::StatusOr<PluginParam> Create(const feedwater_param& declared);

  const ParamInfo& info() const { return info_; }
  const PluginValue& default_value() const { return default_; }
  // InvalidArgument "place: 'p' must be ...".
  absl::StatusOr<PluginValue> Read(const YamlNode& node) const;

 private:
  PluginParam(ParamInfo info, PluginValue kind)
      : info_(std::move(info)), default_(std::move(kind)) {}

  ParamInfo info_;
  PluginValue default_;  // of the parameter's kind, also where there is none
};

// The values of one entry of a graph.
class PluginArguments {
 public:
  // `node` holds the parameters, or nothing; `what`: "op 'vignette'".
  static absl::StatusOr<PluginArguments> Read(absl::Span<const PluginParam> params,
                                              const YamlNode& node, absl::string_view what);

  PluginArguments(PluginArguments&&) = default;
  PluginArguments& operator=(PluginArguments&&) = default;

  // As plug-ins take them; valid as long as this object, moved or not.
  const feedwater_value* values() const { return views_.data(); }
  // "strength=0.5;size=[1.0, 2.0];"
  std::string Text(absl::Span<const PluginParam> params) const;

 private:
  PluginArguments() = default;

  std::vector<PluginValue> values_;
  std::vector<feedwater_value> views_;  // of values_
};

// A text of a plug-in's, of which 4 KiB are looked at. InvalidArgument "WHAT is missing", "... is
// no UTF-8".
absl::StatusOr<std::string> PluginText(const char* text, absl::string_view what);
// The same for a name: lower case letters, digits and '_', at most 64.
absl::StatusOr<std::string> PluginName(const char* text, absl::string_view what);

}  // namespace feedwater::server
