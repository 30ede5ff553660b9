#include "server/text/vocabulary.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/base/yaml.h"

namespace feedwater::server {

std::string Vocabulary::PlaceOf(const Token& token) {
  return token.line == 0 ? "" : absl::StrCat("line ", token.line, ": ");
}

absl::Status Vocabulary::Add(absl::string_view token, int64_t id, int64_t at_line) {
  const Token added{static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(token.size()),
                    static_cast<int32_t>(id), static_cast<uint32_t>(at_line)};
  if (id < 0 || id >= kMostTokens) {
    return absl::InvalidArgumentError(absl::StrCat(PlaceOf(added), "token '", Printable(token),
                                                   "' has the id ", id,
                                                   ", which must be from 0 to ", kMostTokens - 1));
  }
  if (static_cast<int64_t>(tokens_.size()) >= kMostTokens ||
      token.size() > std::numeric_limits<uint32_t>::max() - texts_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMostTokens, " tokens, which is the most that is read"));
  }
  texts_.insert(texts_.end(), token.begin(), token.end());
  tokens_.push_back(added);
  max_id_ = std::max(max_id_, added.id);
  max_token_bytes_ = std::max(max_token_bytes_, token.size());
  return absl::OkStatus();
}

absl::string_view Vocabulary::token(size_t i) const {
  return {texts_.data() + tokens_[i].offset, tokens_[i].bytes};
}

absl::Status Vocabulary::Finish() {
  // What is kept for each id is no more than what the file takes, however far the ids lie apart.
  const auto id_end = static_cast<int64_t>(2 * tokens_.size()) + kMostSpareIds;
  if (max_id_ >= id_end) {
    return absl::InvalidArgumentError(absl::StrCat("the id ", max_id_, " is too large for ",
                                                   tokens_.size(), " tokens, whose ids must be ",
                                                   "below ", id_end));
  }
  texts_.shrink_to_fit();
  ids_.reserve(tokens_.size());
  std::vector<int32_t> by_id(static_cast<size_t>(max_id_ + 1), -1);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (!ids_.emplace(token(i), tokens_[i].id).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          PlaceOf(tokens_[i]), "token '", Printable(token(i)), "' stands there a second time"));
    }
    int32_t& owner = by_id[static_cast<size_t>(tokens_[i].id)];
    if (owner >= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(PlaceOf(tokens_[i]), "token '", Printable(token(i)), "' has the id ",
                       tokens_[i].id, ", as '", Printable(token(static_cast<size_t>(owner))),
                       "' has; an id belongs to one token"));
    }
    owner = static_cast<int32_t>(i);
  }
  has_id_.resize(by_id.size());
  for (size_t id = 0; id < by_id.size(); ++id) has_id_[id] = by_id[id] >= 0;
  return absl::OkStatus();
}

bool Vocabulary::has_id(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < has_id_.size() && has_id_[static_cast<size_t>(id)];
}

int32_t Vocabulary::Find(absl::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

}  // namespace feedwater::server
