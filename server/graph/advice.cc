#include "server/graph/advice.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/units.h"
#include "server/graph/element.h"
#include "server/graph/inner_ops.h"
#include "server/graph/mel_params.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

constexpr double kPixelRange = 255;

std::vector<double> NumbersOf(const YamlNode* list) {
  std::vector<double> numbers;
  if (list == nullptr) return numbers;
  for (const YamlNode& item : list->items) {
    double number = 0;
    if (absl::SimpleAtod(item.scalar, &number)) numbers.push_back(number);
  }
  return numbers;
}

std::string InPixelUnits(std::vector<double> numbers) {
  for (double& number : numbers) number *= kPixelRange;
  return absl::StrCat("[", absl::StrJoin(numbers, ", "), "]");
}

// torchvision's mean and std are of pixels 0..1. A mean of 0 and a std of 1 change nothing and may
// well be meant.
std::string AdviceOnNormalize(const OpSpec& op) {
  const std::vector<double> mean = NumbersOf(op.params.Find("mean")),
                            std = NumbersOf(op.params.Find("std"));
  const auto all_within = [](const std::vector<double>& numbers, double least, double most) {
    return !numbers.empty() && std::all_of(numbers.begin(), numbers.end(), [=](double number) {
      return number >= least && number <= most;
    });
  };
  if (!all_within(std, 0, 1) || all_within(std, 1, 1)) return "";
  const char* const rest = " of pixels from 0 to 1; here they are from 0 to 255: `";
  if (!all_within(mean, 0, 1)) {
    return absl::StrCat(op.node.Where(), ": normalize: std looks like that", rest,
                        "std: ", InPixelUnits(std), "`");
  }
  return absl::StrCat(op.node.Where(), ": normalize: mean and std look like those", rest,
                      "mean: ", InPixelUnits(mean), ", std: ", InPixelUnits(std), "`");
}

std::optional<double> NumberOf(const OpSpec& op, const char* name) {
  const YamlNode* node = op.params.Find(name);
  double number = 0;
  if (node == nullptr || !absl::SimpleAtod(node->scalar, &number)) return std::nullopt;
  return number;
}

// Of a batch that is no multiple of `samples` the last window is shorter than a text may be.
void AdviceOnPack(const PipelineSpec& spec, std::vector<std::string>* advice) {
  for (const OpSpec& op : spec.batch_graph) {
    if (op.name != "pack") continue;
    const auto samples = static_cast<int64_t>(NumberOf(op, "samples").value_or(1));
    if (spec.batch_size > 0 && samples > 0 && spec.batch_size % samples != 0) {
      advice->push_back(absl::StrCat(op.node.Where(), ": pack: samples is ", samples,
                                     ", of which batch.size ", spec.batch_size,
                                     " is no multiple: the last window of each batch is shorter"));
    }
    const YamlNode* const overflow = op.params.Find("overflow");
    if (spec.sampler.last != "partial" || (overflow != nullptr && overflow->scalar == "leave_out"))
      continue;
    advice->push_back(
        absl::StrCat(op.node.Where(),
                     ": pack: with `last: partial` the last batch of an epoch may have a window "
                     "that is too short for a text, which ends the job; take `sampler: {last: "
                     "pad}`, or `overflow: leave_out`"));
  }
}

// Decibels of a magnitude that are taken as those of a power are half of what they should be.
void AdviceOnDecibels(const std::vector<OpSpec>& graph, std::vector<std::string>* advice) {
  std::set<std::string> magnitudes;
  for (const OpSpec& op : graph) {
    const YamlNode* const stype = op.params.Find("stype");
    if (op.name == "amplitude_to_db" && magnitudes.contains(op.in[0]) &&
        (stype == nullptr || stype->scalar == "power")) {
      advice->push_back(absl::StrCat(op.node.Where(), ": amplitude_to_db: takes '", op.in[0],
                                     "' for a power, but it was made with `power: 1`: "
                                     "`stype: magnitude`"));
    }
    for (const std::string& name : op.out) magnitudes.erase(name);
    if (op.name == "mel_spectrogram" && NumberOf(op, "power") == 1) magnitudes.insert(op.out[0]);
  }
}

// Fields that are made, and made again before anything has read them.
void AdviceOnUnread(const PipelineSpec& spec, std::vector<std::string>* advice) {
  std::map<std::string, const OpSpec*> unread;
  for (const OpSpec& op : spec.graph) {
    for (const std::string& name : op.in) unread.erase(name);
    for (const std::string& name : op.out) {
      const OpSpec*& before = unread[name];
      if (before != nullptr) {
        advice->push_back(absl::StrCat(op.node.Where(), ": ", op.name, ": replaces the '", name,
                                       "' that ", before->name, " makes at ", before->node.Where(),
                                       ", which nothing has read"));
      }
      before = &op;
    }
  }
}

// A mel spectrogram of which bands are empty, or which takes the audio for one of another rate than
// it has by then: in neither case are the numbers wrong in themselves.
void AdviceOnMels(const std::vector<OpSpec>& graph, std::vector<std::string>* advice) {
  std::map<std::string, double> rates;  // of values by their names, where they are known
  for (const OpSpec& op : graph) {
    const auto at = op.in.empty() ? rates.end() : rates.find(op.in[0]);
    const std::optional<double> before =
        at == rates.end() ? std::nullopt : std::optional<double>(at->second);
    const bool is_resample = op.name == "resample";
    const auto rate = NumberOf(op, is_resample ? "new_freq" : "sample_rate");
    const char* const expected_key = is_resample ? "orig_freq" : "sample_rate";
    const bool is_mel = op.name == "mel_spectrogram" || op.name == "mfcc";
    if (const auto expected = NumberOf(op, expected_key);
        (is_resample || is_mel) && before && expected && *expected != *before) {
      advice->push_back(absl::StrCat(op.node.Where(), ": ", op.name, ": ", expected_key, " is ",
                                     *expected, ", but the audio before it has ", *before, " Hz"));
    }
    // An op that chooses among others, or repeats them, may change the rate or not.
    std::optional<double> after = op.inner.empty() ? before : std::nullopt;
    if (is_resample || op.name == "decode_audio") after = rate;
    for (const std::string& name : op.out) {
      rates.erase(name);
      if (after) rates[name] = *after;
    }
    if (!is_mel || !rate) continue;
    MelParams params;
    params.sample_rate = static_cast<int64_t>(*rate);
    params.n_fft = static_cast<int64_t>(NumberOf(op, "n_fft").value_or(400));
    params.n_mels = static_cast<int64_t>(NumberOf(op, "n_mels").value_or(128));
    params.f_min = NumberOf(op, "f_min").value_or(0);
    params.f_max = NumberOf(op, "f_max");
    const YamlNode* const scale = op.params.Find("mel_scale");
    if (scale != nullptr) params.mel_scale = scale->scalar;
    const auto settings = SettingsOf(params);
    if (!settings.ok() || params.n_mels < 1 || params.n_mels > kMostMels || params.n_fft < 1 ||
        params.n_fft > kMostFourierSize)
      continue;
    MelSettings mel = settings->mel;
    mel.bins = settings->n_fft / 2 + 1;
    const int empty = MelFilters(mel).first_empty();
    if (empty < 0) continue;
    advice->push_back(absl::StrCat(op.node.Where(), ": ", op.name, ": no frequency lies in band ",
                                   empty, " of ", params.n_mels,
                                   ", which is all zeros; use fewer n_mels or a larger n_fft than ",
                                   params.n_fft));
  }
}

// torchvision's threshold of float images is of pixels 0..1, and inverts nearly all of one of
// bytes. Of both the value at the threshold is inverted: the byte is rounded up.
std::string AdviceOnSolarize(const OpSpec& op) {
  const YamlNode* const given = op.params.Find("threshold");
  double threshold = 0;
  if (given == nullptr || !absl::SimpleAtod(given->scalar, &threshold)) return "";
  if (threshold <= 0 || threshold > 1) return "";
  return absl::StrCat(given->Where(), ": random_solarize: threshold ", given->scalar,
                      " looks like that of pixels from 0 to 1; here they are from 0 to 255: "
                      "`threshold: ",
                      threshold * kPixelRange, "`");
}

}  // namespace

namespace {

void AdviseOnOps(const std::vector<OpSpec>& ops, std::vector<std::string>* advice) {
  for (const OpSpec& op : ops) {
    std::string text = op.name == "normalize"         ? AdviceOnNormalize(op)
                       : op.name == "random_solarize" ? AdviceOnSolarize(op)
                                                      : "";
    if (!text.empty()) advice->push_back(std::move(text));
    AdviseOnOps(op.inner, advice);
  }
}

}  // namespace

std::vector<std::string> AdviceOn(const PipelineSpec& spec) {
  std::vector<std::string> advice;
  AdviseOnOps(spec.graph, &advice);
  AdviseOnOps(spec.batch_graph, &advice);
  AdviceOnMels(spec.graph, &advice);
  AdviceOnDecibels(spec.graph, &advice);
  AdviceOnUnread(spec, &advice);
  AdviceOnPack(spec, &advice);
  return advice;
}

namespace {

// Whether an op that reads `fields`, or one in it, moves things, `with` among them where it is
// given.
bool Moves(const OpSpec& op, absl::Span<const std::string> fields, const std::string* with) {
  const OpEntry* entry = Registry<OpEntry>::Get().Find(op.name);
  if (entry != nullptr && entry->is_joint &&
      (with == nullptr || absl::c_linear_search(fields, *with)))
    return true;
  return absl::c_any_of(op.inner, [&](const OpSpec& inner) {
    return Moves(inner, InnerFields(inner, fields), with);
  });
}

// Ops that move an image in its place, but not `with`, which moves with that image at another op.
std::vector<const OpSpec*> MoversWithout(const std::vector<OpSpec>& graph,
                                         const std::string& with) {
  std::vector<const OpSpec*> found;
  const auto look = [&](const OpSpec& op) {
    if (Moves(op, op.in, nullptr) && !Moves(op, op.in, &with) && !absl::c_linear_search(found, &op))
      found.push_back(&op);
  };
  for (size_t joint = 0; joint < graph.size(); ++joint) {
    if (!Moves(graph[joint], graph[joint].in, &with)) continue;
    std::string image = graph[joint].in[0];
    for (size_t i = joint; i-- > 0;) {  // what the image was made by
      const auto made = absl::c_find(graph[i].out, image);
      if (made == graph[i].out.end()) continue;
      look(graph[i]);
      const auto place = static_cast<size_t>(made - graph[i].out.begin());
      if (place >= graph[i].in.size()) break;
      image = graph[i].in[place];
    }
    image = graph[joint].out[0];
    for (size_t i = joint + 1; i < graph.size(); ++i) {  // and what is made of it under its name
      const auto read = absl::c_find(graph[i].in, image);
      const auto place = static_cast<size_t>(read - graph[i].in.begin());
      if (place < graph[i].out.size() && graph[i].out[place] == image) look(graph[i]);
    }
  }
  return found;
}

// Whether an op, or one in it, moves things another way for each sample.
bool MovesAtRandom(const OpSpec& op) {
  const OpEntry* entry = Registry<OpEntry>::Get().Find(op.name);
  if (entry != nullptr && entry->is_joint && entry->randomness != Randomness::kNone) return true;
  return absl::c_any_of(op.inner, MovesAtRandom);
}

// Masks that `decode: {mode: index}` makes, and that stay where they are while an image is moved at
// random.
void AdviceOnMasks(const PipelineSpec& spec, std::vector<std::string>* advice) {
  for (const OpSpec& decode : spec.graph) {
    const YamlNode* const mode = decode.params.Find("mode");
    if (decode.name != "decode" || mode == nullptr || mode->scalar != "index") continue;
    const std::string& mask = decode.out[0];
    const bool is_output =
        absl::c_any_of(spec.outputs, [&](const OutputSpec& output) { return output.name == mask; });
    const bool is_joint = absl::c_any_of(
        spec.graph, [&](const OpSpec& op) { return op.in.size() > 1 && Moves(op, op.in, &mask); });
    if (!is_output || is_joint) continue;
    for (const OpSpec& op : spec.graph) {
      if (!MovesAtRandom(op) || op.in[0] == mask) continue;
      advice->push_back(absl::StrCat(
          op.node.Where(), ": ", op.name, ": moves '", op.in[0], "' without '", mask,
          "', which then no longer fits it. To move it too: `in: [", op.in[0], ", ", mask, "]`"));
      break;
    }
  }
}

bool IsBoxes(const TensorSpec& spec) {
  return spec.HasVaryingRows() && IsFloating(spec.dtype) && spec.shape.size() == 2 &&
         spec.shape[1] == 4;
}

}  // namespace

std::vector<std::string> AdviceOnMoves(const PipelineSpec& spec,
                                       absl::Span<const FieldSpec> fields) {
  const auto is_output = [&](const std::string& name) {
    return std::any_of(spec.outputs.begin(), spec.outputs.end(),
                       [&](const OutputSpec& output) { return output.name == name; });
  };
  // The first op that moves things, `with` among them where it is given.
  const auto mover = [&](const std::string* with) {
    return std::find_if(spec.graph.begin(), spec.graph.end(),
                        [&](const OpSpec& op) { return Moves(op, op.in, with); });
  };
  std::vector<std::string> advice;
  AdviceOnMasks(spec, &advice);
  const auto any = mover(nullptr);
  if (any == spec.graph.end()) return advice;
  for (const FieldSpec& boxes : fields) {
    if (!IsBoxes(boxes.spec) || !is_output(boxes.name)) continue;
    const auto op = mover(&boxes.name);
    if (op == spec.graph.end()) {
      advice.push_back(absl::StrCat(any->node.Where(), ": ", any->name, ": moves '", any->in[0],
                                    "' alone, while '", boxes.name,
                                    "' reach the batch as the record has them. To move them too: "
                                    "`in: [",
                                    any->in[0], ", ", boxes.name,
                                    "]`, with their labels behind them"));
      continue;
    }
    for (const OpSpec* without : MoversWithout(spec.graph, boxes.name)) {
      advice.push_back(absl::StrCat(
          without->node.Where(), ": ", without->name, ": moves '", without->in[0], "' without '",
          boxes.name, "', which move with it at ", op->node.Where(), ": `in: [",
          absl::StrJoin(without->in, ", "), ", ", boxes.name, "]`, with their labels behind them"));
    }
    for (const FieldSpec& rows : fields) {
      if (!rows.spec.HasVaryingRows() || rows.spec.shape.size() != 1 || !is_output(rows.name))
        continue;
      for (const OpSpec& joint : spec.graph) {
        if (!Moves(joint, joint.in, &boxes.name) || Moves(joint, joint.in, &rows.name)) continue;
        advice.push_back(absl::StrCat(
            joint.node.Where(), ": ", joint.name, ": drops boxes that leave the picture, while '",
            rows.name, "' keep all rows. If there is one for each of '", boxes.name,
            "', name them behind: `in: [", absl::StrJoin(joint.in, ", "), ", ", rows.name, "]`"));
        break;
      }
    }
  }
  return advice;
}

namespace {

// The sources of a mix stand at places of a period, and `interleave` gives a rank every W-th
// position: where the two have a common divisor, a rank sees but a part of the places.
std::string AdviceOnInterleaving(const OrderConfig& order) {
  if (order.mix == nullptr || order.shard != ShardMode::kInterleave) return "";
  const int64_t period = order.mix->schedule().period();
  const int64_t common = std::gcd(period, order.world_size);
  if (common == 1 || order.mix->sources().size() == 1) return "";
  return absl::StrCat("with `shard: interleave` the ranks do not get the same shares of the mix: ",
                      "its sources follow one another with a period of ", period,
                      " samples, of which a rank of ", order.world_size, " sees one in ", common,
                      ". To have each source on every rank take `sampler: {shard: batch}`");
}

std::string AdviceOnEmptyBatches(const OrderConfig& order) {
  const int64_t first = FirstEmptyRank(order), last = order.world_size - 1;
  if (first > last) return "";
  return absl::StrCat(
      first == last ? absl::StrCat("rank ", first, " of ", order.world_size, " gets")
                    : absl::StrCat("ranks ", first, " to ", last, " of ", order.world_size, " get"),
      " an empty last batch in each epoch: `last: partial` shares what ",
      FormatCount(order.positions(), order.mix == nullptr ? "record" : "sample"),
      " leave after full batches, ", FormatCount(first, "sample"),
      ". To have equal batches on all ranks take `sampler: {last: pad}`, with `is_real` among the "
      "outputs, which says which samples count");
}

}  // namespace

std::string AdviceOn(const OrderConfig& order) {
  std::string advice = AdviceOnEmptyBatches(order);
  const std::string more = AdviceOnInterleaving(order);
  return absl::StrCat(advice, advice.empty() || more.empty() ? "" : "; ", more);
}

}  // namespace feedwater::server
