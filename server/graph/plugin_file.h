// Plug-ins as files: shared libraries that offer ops (proto/plugin/feedwater/plugin.h), loaded into
// this process and never unloaded. What is loaded can do all that the process can, so a file is
// only taken that nobody but root and this process's user can write or replace.
//
// A decoder process loads the same files as the one that starts it, before it enters its sandbox:
// each is handed on by its path and its stamp, so that two versions of one file never make one
// batch.
//
// Not thread-safe: plug-ins are loaded before the first thread that looks for an op.
#pragma once

#include <string>
#include <vector>

#include "server/base/status.h"

namespace feedwater::server {

struct LoadedPlugin {
  std::string path;              // without links
  std::string stamp;             // device, inode, size and time of change of what was loaded
  std::vector<std::string> ops;  // that it has brought
};

// Loads the file, unless it is loaded already, and puts its ops into the registry. InvalidArgument
// "PATH ..." with the reason and the cure: none of its ops is there then, but where an op's example
// is what is wrong. PermissionDenied where another user's process may take it: the file or a folder
// on the way to it belongs to somebody else than root and this process's user, or may not be read.
// `stamp`, where not "": what the file's has to be.
absl::Status LoadPlugin(const std::string& path, const std::string& stamp = "");

const std::vector<LoadedPlugin>& LoadedPlugins();
// Paths of the plug-ins whose file has changed or is gone.
std::vector<std::string> ChangedPlugins();

// Environment variables that name the plug-ins to a process that this one starts, and loading them
// there.
std::vector<std::string> PluginVariables();
absl::Status LoadPluginsOfEnvironment();

}  // namespace feedwater::server
