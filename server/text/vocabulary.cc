#include "server/text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

// The bits of a hash that stand beside a token's number.
uint32_t TagOf(size_t hash) { return static_cast<uint32_t>(hash >> 57 << 24); }
static_assert(kMostTokens == 1 << 24 && sizeof(size_t) == 8);

}  // namespace

std::string Vocabulary::PlaceOf(const Token& token) {
  return token.line == 0 ? "" : absl::StrCat("line ", token.line, ": ");
}

void Vocabulary::Reserve(size_t tokens, size_t bytes) {
  tokens_.reserve(std::min(tokens, static_cast<size_t>(kMostTokens)));
  texts_.reserve(bytes);
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
  texts_.append(token.data(), token.size());
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
  tokens_.shrink_to_fit();
  places_.assign(std::bit_ceil(2 * tokens_.size()), kFree);
  std::vector<int32_t> by_id(static_cast<size_t>(max_id_ + 1), -1);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const size_t hash = absl::HashOf(token(i));
    uint32_t& place = places_[PlaceFor(token(i), hash)];
    if (place != kFree) {
      return absl::InvalidArgumentError(absl::StrCat(
          PlaceOf(tokens_[i]), "token '", Printable(token(i)), "' stands there a second time"));
    }
    place = TagOf(hash) | static_cast<uint32_t>(i);
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

size_t Vocabulary::PlaceFor(absl::string_view wanted, size_t hash) const {
  const size_t mask = places_.size() - 1;
  for (size_t place = hash & mask;; place = (place + 1) & mask) {
    const uint32_t found = places_[place];
    if (found == kFree || ((found & ~kNumber) == TagOf(hash) && token(found & kNumber) == wanted)) {
      return place;
    }
  }
}

int32_t Vocabulary::Find(absl::string_view token) const {
  const uint32_t found = places_[PlaceFor(token, absl::HashOf(token))];
  return found == kFree ? -1 : tokens_[found & kNumber].id;
}

std::string ByteToken(int64_t byte) { return absl::StrFormat("<0x%02X>", byte); }

std::array<int32_t, 256> ByteTokens(const Vocabulary& vocabulary) {
  std::array<int32_t, 256> ids;
  for (size_t byte = 0; byte < ids.size(); ++byte)
    ids[byte] = vocabulary.Find(ByteToken(static_cast<int64_t>(byte)));
  return ids;
}

}  // namespace feedwater::server
