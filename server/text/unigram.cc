#include "server/text/unigram.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/yaml.h"
#include "server/text/best_path.h"

namespace feedwater::server {
namespace {

constexpr double kUnknownPenalty = 10;
constexpr size_t kMostTokenBytes = 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<Unigram>> Unigram::Create(Vocabulary vocabulary,
                                                         std::vector<double> scores,
                                                         int32_t unknown, bool byte_fallback) {
  auto made = std::make_unique<Unigram>();
  if (scores.size() != vocabulary.size()) return absl::InternalError("a token without a score");
  std::vector<ByteTrie::Key> keys;
  keys.reserve(vocabulary.size());
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const absl::string_view token = vocabulary.token(i);
    if (token.size() > kMostTokenBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.vocab[", i, "] '", Printable(token.substr(0, 64)), "...' has ",
                       token.size(), " bytes; at most ", kMostTokenBytes, " are read"));
    }
    least = std::min(least, scores[i]);
    if (!token.empty()) keys.push_back({token, vocabulary.id(i)});  // no text has an empty one
  }
  ByteTrie::Key twice;
  if (!made->pieces_.Build(std::move(keys), &twice)) return absl::InternalError("a token twice");
  if (byte_fallback) {
    made->byte_ids_ = ByteTokens(vocabulary);
  } else {
    made->byte_ids_.fill(-1);
  }
  made->vocabulary_ = std::move(vocabulary);
  made->scores_ = std::move(scores);
  made->unknown_ = unknown;
  made->unknown_score_ = least - kUnknownPenalty;
  return made;
}

int64_t Unigram::ScratchBytes(int64_t bytes, int64_t /*characters*/) const {
  return (bytes + 1) * static_cast<int64_t>(sizeof(BestStep<double>)) + 64;
}

// As tokenizers, which looks for the run as a whole first, whatever the path was.
bool Unigram::AddUnknown(absl::string_view run, Encoding* encoding) const {
  if (run.size() <= vocabulary_.max_token_bytes()) {
    if (const int32_t id = vocabulary_.Find(run); id >= 0) return encoding->ids.Add(id);
  }
  const auto id_of = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(run.begin(), run.end(), [&](char byte) { return id_of(byte) < 0; }))
    return encoding->ids.Add(unknown_);
  return std::all_of(run.begin(), run.end(),
                     [&](char byte) { return encoding->ids.Add(id_of(byte)); });
}

bool Unigram::Encode(absl::string_view word, Encoding* encoding) const {
  const ScratchFrame frame(&encoding->scratch);
  absl::string_view run;  // of unknown characters, so far
  const auto end_run = [&] {
    return run.empty() || AddUnknown(std::exchange(run, absl::string_view()), encoding);
  };
  const bool is_walked = WalkBestPath<double>(
      word, pieces_, {unknown_, unknown_score_}, std::numeric_limits<double>::infinity(), encoding,
      [&](int32_t id, size_t /*bytes*/) { return scores_[static_cast<size_t>(id)]; },
      [&](absl::string_view piece, int32_t id) {
        if (id != unknown_) return end_run() && encoding->ids.Add(id);
        run = run.empty() ? piece : absl::string_view(run.data(), run.size() + piece.size());
        return true;
      });
  return is_walked && end_run();
}

}  // namespace feedwater::server
