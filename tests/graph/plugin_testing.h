// Plug-ins of a test's own program: an op, put together and read as if a library had given it.
#pragma once

#include <cstring>
#include <vector>

#include "server/graph/plugin_op.h"

namespace feedwater::server::plugin_testing {

using PlanFunction = decltype(feedwater_op::plan);
using RunFunction = decltype(feedwater_op::run);

inline constexpr uint32_t kUInt8 = FEEDWATER_BIT(FEEDWATER_UINT8);
inline const feedwater_port kImagePort = {"image", "The image.", kUInt8,
                                          FEEDWATER_BIT(FEEDWATER_HWC)};
inline const feedwater_port kAnyPort = {nullptr, "What it makes.", 0, 0};

// A good op on uint8 images, of the name.
inline feedwater_op OpOf(const char* name, RunFunction run, PlanFunction plan = nullptr,
                         uint32_t flags = 0) {
  feedwater_op op{};
  op.name = name;
  op.version = "1";
  op.summary = "Is for tests.";
  op.flags = flags;
  op.inputs = &kImagePort;
  op.outputs = &kAnyPort;
  op.input_count = op.output_count = 1;
  op.plan = plan;
  op.run = run;
  return op;
}

inline feedwater_plugin_info InfoOf(const feedwater_op* ops, uint32_t count) {
  feedwater_plugin_info info = {FEEDWATER_PLUGIN_SIZES, nullptr, 0, nullptr};
  info.ops = ops;
  info.op_count = count;
  return info;
}

inline absl::StatusOr<std::vector<OpEntry>> Read(const feedwater_plugin_info& info) {
  FW_RETURN_IF_ERROR(CheckPluginAbi(&info));
  return PluginOps(info);
}

// The input, copied to a first output that looks like it.
inline const char* Copy(const feedwater_value*, feedwater_sample* sample) {
  void* out = sample->output(sample, 0, &sample->inputs[0].spec);
  if (out == nullptr) return nullptr;
  std::memcpy(out, sample->inputs[0].data, sample->inputs[0].bytes);
  return nullptr;
}

}  // namespace feedwater::server::plugin_testing
