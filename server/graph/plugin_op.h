// Ops of plug-ins (proto/plugin/feedwater/plugin.h) as ops of the registry. What a plug-in declares
// is copied and checked here; what its functions do is held against what it has declared and
// planned, so that a mistaken one costs its sample. One that writes where it should not is held off
// only by a process of its own (decoder/).
#pragma once

#include <string>
#include <vector>

#include "proto/plugin/feedwater/plugin.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {

// Of a plug-in's ABI version and sizes: whether the rest of it can be read. `info` may be null.
absl::Status CheckPluginAbi(const feedwater_plugin_info* info);

// The ops that it offers, checked. REQUIRES: CheckPluginAbi was content. InvalidArgument says what
// of which op is wrong. `info`'s functions stay in use; nothing else of it does.
absl::StatusOr<std::vector<OpEntry>> PluginOps(const feedwater_plugin_info& info);

// What a function of a plug-in has said; escaped, and cut where it is long.
std::string PluginMessage(const char* text);

}  // namespace feedwater::server
