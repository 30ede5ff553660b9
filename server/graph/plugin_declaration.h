// An op as a plug-in declares it, copied and checked; plugin_op.cc makes an Op of it. Only its
// functions point into the plug-in.
#pragma once

#include <string>
#include <vector>

#include "server/graph/op_schema.h"
#include "server/graph/plugin_params.h"

namespace feedwater::server {

struct PluginOpDeclaration {
  std::string name, version, summary, cost, example;
  bool is_random = false, is_repeated = false;
  std::vector<Port> inputs, outputs;
  std::vector<PluginParam> params;
  decltype(feedwater_op::plan) plan = nullptr;
  decltype(feedwater_op::run) run = nullptr;

  const Port& input(size_t i) const { return inputs[is_repeated ? 0 : i]; }
  const Port& output(size_t i) const { return outputs[is_repeated ? 0 : i]; }
};

inline constexpr size_t kMaxPluginPorts = 16;

// REQUIRES: CheckPluginAbi (plugin_op.h) was content.
absl::StatusOr<std::vector<PluginOpDeclaration>> ReadPluginOps(const feedwater_plugin_info& info);

}  // namespace feedwater::server
