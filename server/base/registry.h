// Named implementations of an interface. A plugin file registers itself with one namespace-scope
// Registrar; nobody includes it. Entries are added before main() and never removed, so reading
// needs no lock. (Ops of plug-ins come a little later: before the first thread that reads.)
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/yaml.h"

namespace feedwater::server {

// Entry: what is stored under a name; `kKind` names it in messages ("op", "format", "engine").
template <typename Entry>
class Registry {
 public:
  static Registry& Get() {
    static Registry* registry = new Registry;
    return *registry;
  }
  bool Add(std::string name, Entry entry) {
    return entries_.emplace(std::move(name), std::move(entry)).second;
  }
  const Entry* Find(absl::string_view name) const {
    auto it = entries_.find(std::string(name));
    return it == entries_.end() ? nullptr : &it->second;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    return names;
  }
  // "unknown op 'resise', did you mean 'resize'? Known: ..."
  std::string Unknown(absl::string_view name) const {
    return absl::StrCat("unknown ", Entry::kKind, " '", Printable(name), "'",
                        Suggest(name, Names()));
  }

 private:
  std::map<std::string, Entry> entries_;
};

template <typename Entry>
struct Registrar {
  Registrar(std::string name, Entry entry) {
    Registry<Entry>::Get().Add(std::move(name), std::move(entry));
  }
};

}  // namespace feedwater::server
