// What `feedwater doctor` says about one thing that it looked at.
#pragma once

#include <string>
#include <utility>

namespace feedwater::cli {

struct Finding {
  enum class State { kGood, kSkipped, kWarning, kFailure };

  std::string check;
  State state = State::kGood;
  std::string found, cure;  // the cure is empty when the state is good
};

inline Finding Good(std::string check, std::string found) {
  return {std::move(check), Finding::State::kGood, std::move(found), ""};
}
inline Finding Warning(std::string check, std::string found, std::string cure) {
  return {std::move(check), Finding::State::kWarning, std::move(found), std::move(cure)};
}
inline Finding Failure(std::string check, std::string found, std::string cure) {
  return {std::move(check), Finding::State::kFailure, std::move(found), std::move(cure)};
}

}  // namespace feedwater::cli
