// JSON as the commands write it: bytes that are no UTF-8, as names of files may be, become U+FFFD.
#pragma once

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

namespace feedwater::cli {

// Of an nlohmann::json or ordered_json. `indent`: -1 for one line.
template <typename Json>
std::string JsonText(const Json& document, int indent = 2) {
  return document.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// The one document of a command with --json.
template <typename Json>
void PrintJson(const Json& document) {
  std::cout << JsonText(document) << "\n";
}

}  // namespace feedwater::cli
