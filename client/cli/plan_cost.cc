#include "client/cli/plan_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/cost_variant.h"
#include "client/cli/progress.h"
#include "client/cli/text.h"
#include "server/base/clock.h"
#include "server/base/units.h"
#include "server/graph/plan_graph.h"
#include "server/pipeline/cache_choice.h"
#include "server/pipeline/dataset_order.h"
#include "server/pipeline/kept_fields.h"

namespace feedwater::cli {
namespace {

using server::PlanGraph;

constexpr int kRounds = 9, kLeastRounds = 5, kReadRounds = 3;
constexpr double kBudgetUs = 12e6;  // of CPU time for all rounds of one comparison
constexpr int64_t kMaxRecordBytes = int64_t{256} << 20;
constexpr double kWorthTrying = 0.02;           // of a sample, for a pass whose ops are left out
constexpr double kParametersWorthTrying = 0.1;  // of a sample, for an op whose parameters are
constexpr double kClearShare = 0.02;            // of a sample; less is not worth a change
constexpr size_t kMaxVariants = 48;

double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const double part = at - static_cast<double>(below);
  const double above = values[std::min(below + 1, values.size() - 1)];
  return values[below] * (1 - part) + above * part;
}
double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

// Something to compare with the pipeline as it is.
struct Candidate {
  CostChange change;
  std::unique_ptr<CostVariant> variant;
};

class CostMeter {
 public:
  CostMeter(const LocalPipeline& pipeline, const CostOptions& options)
      : pipeline_(pipeline), options_(options), spec_(pipeline.loaded->spec) {}

  absl::StatusOr<PlanCost> Measure() {
    if (pipeline_.decoders != nullptr) {
      return absl::FailedPreconditionError(
          "this configuration has images decoded in processes of their own (`isolation`), into "
          "which a measurement of single ops cannot look; name one with `isolation: none` by "
          "--config FILE");
    }
    FW_RETURN_IF_ERROR(LoadRecords());
    base_ = std::make_unique<CostVariant>(pipeline_.loaded->plan, Places());
    FW_RETURN_IF_ERROR(LeaveOutBadOnes());
    FW_RETURN_IF_ERROR(MeasureSteps());
    if (options_.tries_changes) {
      FW_RETURN_IF_ERROR(Compare(WithoutOps()));
      FW_RETURN_IF_ERROR(Compare(OtherWays()));
      // By themselves: where they hold fewer samples, nothing else is measured with fewer.
      FW_RETURN_IF_ERROR(Compare(Caches()));
      std::stable_sort(
          cost_.changes.begin(), cost_.changes.end(),
          [](const CostChange& a, const CostChange& b) { return a.saved_us > b.saved_us; });
    }
    return std::move(cost_);
  }

 private:
  // As many of a batch as there are places; 1 makes samples in the same place over and over.
  int64_t Places() const { return std::min<int64_t>(8, std::max<int64_t>(1, options_.records)); }

  void Tell(int64_t done, int64_t total) const {
    if (options_.progress) options_.progress(done, total);
  }

  // Spread over the order of the first epoch, as the samples of `preview` are.
  absl::Status LoadRecords() {
    FW_ASSIGN_OR_RETURN(server::OrderConfig config,
                        server::MakeOrderConfig(spec_.sampler, pipeline_.dataset(),
                                                /*batch_size=*/1, /*world_size=*/1));
    const auto shared = std::make_shared<const server::OrderConfig>(std::move(config));
    const server::EpochOrder order(shared, /*epoch=*/0, /*start=*/0);
    const int64_t positions = shared->positions(), count = std::min(options_.records, positions);
    FW_ASSIGN_OR_RETURN(RecordLoader loader, RecordLoader::Create(pipeline_));
    int64_t bytes = 0;
    std::vector<int64_t> numbers;
    absl::Status last;
    for (int64_t i = 0; i < count && bytes < kMaxRecordBytes; ++i) {
      const auto position = static_cast<int64_t>(static_cast<__int128>(i) * positions / count);
      const int64_t number = order.RecordAt(position);
      const absl::StatusOr<const server::Record*> record = loader.Load(number);
      if (!record.ok()) {
        last = record.status();
        ++cost_.bad;
        continue;
      }
      samples_.push_back(std::make_unique<KeptSample>(**record, number, position));
      bytes += samples_.back()->bytes();
      numbers.push_back(number);
    }
    if (samples_.empty()) {
      return last.ok() ? absl::InvalidArgumentError("the dataset has no records to measure with")
                       : last;
    }
    // What the files cost once the page cache has them: the kernel's copies and the parsing.
    std::vector<double> rounds;
    for (int round = 0; round < kReadRounds; ++round) {
      const int64_t begin = server::ThreadCpuNs();
      for (int64_t number : numbers) FW_RETURN_IF_ERROR(loader.Load(number).status());
      rounds.push_back(static_cast<double>(server::ThreadCpuNs() - begin) / 1e3 /
                       static_cast<double>(numbers.size()));
    }
    read_us_ = Median(rounds);
    return absl::OkStatus();
  }

  absl::Status LeaveOutBadOnes() {
    std::vector<std::unique_ptr<KeptSample>> good;
    absl::Status last;
    const int64_t begin = server::ThreadCpuNs();
    for (size_t i = 0; i < samples_.size(); ++i) {
      const absl::Status made = base_->Make(*samples_[i], KeyOf(0));
      if (made.ok()) {
        good.push_back(std::move(samples_[i]));
      } else {
        last = made;
        ++cost_.bad;
      }
      Tell(static_cast<int64_t>(i) + 1, static_cast<int64_t>(samples_.size()) * (kRounds + 1));
    }
    guess_us_ = static_cast<double>(server::ThreadCpuNs() - begin) / 1e3 /
                static_cast<double>(samples_.size());
    samples_ = std::move(good);
    if (samples_.empty()) {
      return absl::Status(last.code(),
                          absl::StrCat("no sample could be made to measure: ", last.message()));
    }
    cost_.records = static_cast<int64_t>(samples_.size());
    return absl::OkStatus();
  }

  server::PhiloxKey KeyOf(int round) const {
    return server::EpochKey(spec_.sampler.seed, static_cast<uint64_t>(round));
  }

  // So many rounds of so many samples that the comparison keeps within its budget.
  void ChooseRounds(size_t variants) {
    const double round_us =
        guess_us_ * static_cast<double>(samples_.size()) * static_cast<double>(variants);
    rounds_ =
        std::clamp(static_cast<int>(kBudgetUs / std::max(round_us, 1.0)), kLeastRounds, kRounds);
    const double most =
        kBudgetUs / kLeastRounds / static_cast<double>(variants) / std::max(guess_us_, 1.0);
    used_ = std::clamp<size_t>(static_cast<size_t>(most), std::min<size_t>(4, samples_.size()),
                               samples_.size());
  }

  absl::Status MeasureSteps() {
    ChooseRounds(1);
    const PlanGraph graph = pipeline_.plan().Graph();
    const size_t passes = pipeline_.plan().passes();
    std::vector<std::vector<double>> by_pass(passes + 1);
    std::vector<double> batch, whole;
    for (int round = -1; round < rounds_; ++round) {  // the first one warms up
      std::vector<int64_t> pass_ns(passes + 1);
      FW_ASSIGN_OR_RETURN(const RoundTime time,
                          base_->RunRound(samples_, used_, KeyOf(round + 1), &pass_ns));
      Tell(static_cast<int64_t>(samples_.size()) * (round + 2),
           static_cast<int64_t>(samples_.size()) * (rounds_ + 1));
      if (round < 0) continue;
      double sum = read_us_ + time.batch_us;
      for (size_t i = 0; i <= passes; ++i) {
        by_pass[i].push_back(static_cast<double>(pass_ns[i]) / 1e3 / static_cast<double>(used_));
        sum += by_pass[i].back();
      }
      batch.push_back(time.batch_us);
      whole.push_back(sum);
    }
    cost_.rounds = rounds_;
    cost_.steps.push_back({StepCost::Kind::kRead, {}, {}, -1, "", -1, read_us_, 0});
    for (size_t pass = 0; pass < passes; ++pass) {
      StepCost step{StepCost::Kind::kPass, {}, {}, static_cast<int>(pass), "", 0,
                    Median(by_pass[pass]), 0};
      DescribePass(graph, static_cast<int>(pass), &step);
      cost_.steps.push_back(std::move(step));
    }
    cost_.steps.push_back({StepCost::Kind::kCopy, {}, {}, -1, "", -1, Median(by_pass[passes]), 0});
    if (pipeline_.plan().finishes_batches()) {
      StepCost step{StepCost::Kind::kBatch, {}, {}, -1, "", -1, Median(batch), 0};
      for (const PlanGraph::Node& node : graph.nodes) {
        if (node.kind == PlanGraph::Kind::kBatchOp) step.ops.push_back(node.name);
      }
      cost_.steps.push_back(std::move(step));
    }
    for (const StepCost& step : cost_.steps) cost_.us += step.us;
    for (StepCost& step : cost_.steps) step.share = cost_.us > 0 ? step.us / cost_.us : 0;
    cost_.spread =
        Median(whole) > 0 ? (Quantile(whole, 0.75) - Quantile(whole, 0.25)) / Median(whole) : 0;
    return absl::OkStatus();
  }

  static void DescribePass(const PlanGraph& graph, int pass, StepCost* step) {
    std::vector<std::string> fields;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (graph.nodes[i].pass != pass) continue;
      step->ops.push_back(graph.nodes[i].name);
      step->places.push_back(graph.nodes[i].place);
      std::vector<std::string> seen;
      for (const PlanGraph::Edge& edge : graph.edges) {
        if (edge.from != static_cast<int>(i) || graph.nodes[edge.to].pass == pass) continue;
        std::string text = absl::StrCat(edge.field, " ", edge.spec.ToString());
        if (std::find(seen.begin(), seen.end(), text) != seen.end()) continue;
        const absl::StatusOr<int64_t> bytes = edge.spec.ByteSize();
        step->bytes = bytes.ok() && step->bytes >= 0 ? step->bytes + *bytes : -1;
        seen.push_back(text);
        fields.push_back(std::move(text));
      }
    }
    step->fields = absl::StrJoin(fields, ", ");
  }

  // A variant of the pipeline's text; nothing where it does not fit together.
  std::unique_ptr<CostVariant> Planned(const server::PipelineSpec& spec) const {
    const server::Dataset& dataset = pipeline_.dataset();
    auto plan = server::Plan::Create(spec, dataset.fields(),
                                     static_cast<int64_t>(dataset.classes().size()));
    if (!plan.ok()) return nullptr;
    return std::make_unique<CostVariant>(*std::move(plan), Places());
  }

  // Each op of a pass that matters, left out by itself.
  std::vector<Candidate> WithoutOps() {
    std::vector<Candidate> candidates;
    for (const PlanGraph::Node& node : pipeline_.plan().Graph().nodes) {
      const bool is_batch = node.kind == PlanGraph::Kind::kBatchOp;
      if (node.kind != PlanGraph::Kind::kOp && !is_batch) continue;
      if (candidates.size() >= kMaxVariants || ShareOf(node) < kWorthTrying) continue;
      server::PipelineSpec spec = spec_;
      auto& ops = is_batch ? spec.batch_graph : spec.graph;
      if (node.place < 0 || node.place >= static_cast<int>(ops.size())) continue;
      // The ops behind it draw as they do now: those of `graph` know their numbers.
      for (size_t i = 0; is_batch && i < ops.size(); ++i)
        ops[i].batch_place = static_cast<uint32_t>(i);
      ops.erase(ops.begin() + node.place);
      Candidate candidate;
      candidate.change = {CostChange::Kind::kWithoutOp, node.name, node.place, is_batch};
      candidate.variant = Planned(spec);
      if (candidate.variant == nullptr) {
        AddSettled(node.name);
      } else {
        candidates.push_back(std::move(candidate));
      }
    }
    return candidates;
  }

  void AddSettled(const std::string& op) {
    if (std::find(cost_.settled.begin(), cost_.settled.end(), op) == cost_.settled.end())
      cost_.settled.push_back(op);
  }

  double ShareOf(const PlanGraph::Node& node) const {
    for (const StepCost& step : cost_.steps) {
      const bool is_its = node.kind == PlanGraph::Kind::kBatchOp
                              ? step.kind == StepCost::Kind::kBatch
                              : step.kind == StepCost::Kind::kPass && step.pass == node.pass;
      if (is_its) return step.share;
    }
    return 0;
  }

  // What an op costs by itself, as far as is known: what leaving it out saves, else its pass.
  double CostOf(const PlanGraph::Node& node) const {
    for (const CostChange& change : cost_.changes) {
      if (change.kind == CostChange::Kind::kWithoutOp && change.place == node.place &&
          change.is_batch == (node.kind == PlanGraph::Kind::kBatchOp))
        return change.saved_us;
    }
    return ShareOf(node) * cost_.us;
  }

  // Parameters of costly ops left to their defaults, and decoding that may scale. Ops of one name
  // count together and change together: ten views have one color_jitter each.
  std::vector<Candidate> OtherWays() {
    std::vector<Candidate> candidates;
    std::map<std::pair<bool, std::string>, std::vector<PlanGraph::Node>> by_name;
    for (const PlanGraph::Node& node : pipeline_.plan().Graph().nodes) {
      const bool is_batch = node.kind == PlanGraph::Kind::kBatchOp;
      const auto& ops = is_batch ? spec_.batch_graph : spec_.graph;
      if ((node.kind == PlanGraph::Kind::kOp || is_batch) && node.place >= 0 &&
          node.place < static_cast<int>(ops.size()))
        by_name[{is_batch, node.name}].push_back(node);
    }
    for (const auto& [name, nodes] : by_name) {
      double us = 0;
      for (const PlanGraph::Node& node : nodes) us += CostOf(node);
      if (us >= kParametersWorthTrying * cost_.us) TryParameters(nodes, name.first, &candidates);
    }
    return candidates;
  }

  void TryParameters(const std::vector<PlanGraph::Node>& nodes, bool is_batch,
                     std::vector<Candidate>* candidates) {
    const auto add = [&](CostChange::Kind kind, std::string parameter, auto&& change) {
      if (candidates->size() >= kMaxVariants) return;
      server::PipelineSpec spec = spec_;
      for (const PlanGraph::Node& node : nodes)
        change(&(is_batch ? spec.batch_graph : spec.graph)[static_cast<size_t>(node.place)].params);
      Candidate candidate;
      candidate.change = {kind, nodes[0].name, nodes[0].place, is_batch, std::move(parameter)};
      candidate.change.count = static_cast<int>(nodes.size());
      candidate.variant = Planned(spec);
      if (candidate.variant != nullptr) candidates->push_back(std::move(candidate));
    };
    const auto params_of = [&](const PlanGraph::Node& node) -> const server::YamlNode& {
      return (is_batch ? spec_.batch_graph : spec_.graph)[static_cast<size_t>(node.place)].params;
    };
    std::map<std::string, std::string> given;  // with the value where all have the same
    for (const PlanGraph::Node& node : nodes) {
      for (const auto& [key, value] : params_of(node).entries) {
        const std::string text = absl::StrCat(key.scalar, ": ", InOneLine(value));
        const auto [found, is_new] = given.emplace(key.scalar, text);
        if (!is_new && found->second != text) found->second = key.scalar;
      }
    }
    for (const auto& [name, text] : given) {
      add(CostChange::Kind::kWithoutParameter, text, [&name = name](server::YamlNode* params) {
        auto& entries = params->entries;
        entries.erase(std::remove_if(entries.begin(), entries.end(),
                                     [&](const auto& entry) { return entry.first.scalar == name; }),
                      entries.end());
      });
    }
    const auto* entry = server::Registry<server::OpEntry>::Get().Find(nodes[0].name);
    if (entry == nullptr || entry->fusion != server::Fusion::kDecode ||
        given.find("fast_scale") != given.end())
      return;
    add(CostChange::Kind::kFastScale, "fast_scale: true", [](server::YamlNode* params) {
      server::YamlNode key, value;
      key.kind = value.kind = server::YamlNode::Kind::kScalar;
      key.scalar = "fast_scale";
      value.scalar = "true";
      params->kind = server::YamlNode::Kind::kMap;
      params->entries.emplace_back(std::move(key), std::move(value));
    });
  }

  std::vector<Candidate> Caches() {
    std::vector<Candidate> candidates;
    ChooseRounds(2);  // as many samples as will be used at most
    const server::CacheChoice in_force = server::ChooseCache(
        spec_, pipeline_.dataset(), pipeline_.plan(), pipeline_.settings.cache_memory_bytes,
        pipeline_.settings.config.cache.disk.bytes);
    for (const auto& [kind, cache] :
         {std::pair{CostChange::Kind::kDecodedCache, server::CacheKind::kDecoded},
          std::pair{CostChange::Kind::kCoefficientCache, server::CacheKind::kCoefficients}}) {
      const server::KeptForm form =
          server::KeptFormOf(cache, pipeline_.dataset(), pipeline_.plan());
      const bool is_of_use =
          cache == server::CacheKind::kDecoded
              ? !pipeline_.plan().prefix().ops.empty()
              : std::find(form.as_coefficients.begin(), form.as_coefficients.end(), true) !=
                    form.as_coefficients.end();
      if (!is_of_use) continue;
      auto variant = std::make_unique<CostVariant>(pipeline_.loaded->plan, Places());
      Candidate candidate;
      candidate.change.kind = kind;
      candidate.change.is_in_force = cache == in_force.kind;
      candidate.change.parameter = absl::StrJoin(pipeline_.plan().prefix().ops, "+");
      const auto kept = cache == server::CacheKind::kDecoded
                            ? variant->KeepPrefixes(samples_, used_)
                            : variant->KeepCoefficients(samples_, used_, form.as_coefficients);
      if (!kept.ok() || kept->samples == 0) continue;
      candidate.change.kept_bytes = kept->bytes / static_cast<int64_t>(kept->samples);
      candidate.variant = std::move(variant);
      candidates.push_back(std::move(candidate));
    }
    return candidates;
  }

  // Runs the pipeline and all candidates by turns.
  absl::Status Compare(std::vector<Candidate> candidates) {
    if (candidates.empty()) return absl::OkStatus();
    ChooseRounds(candidates.size() + 1);
    for (const Candidate& candidate : candidates) used_ = candidate.variant->SamplesOf(used_);
    std::vector<std::vector<double>> saved(candidates.size());
    std::vector<bool> failed(candidates.size());
    const auto turns = static_cast<int64_t>(candidates.size() + 1) * (rounds_ + 1);
    int64_t turn = 0;
    for (int round = -1; round < rounds_; ++round) {
      FW_ASSIGN_OR_RETURN(const RoundTime now,
                          base_->RunRound(samples_, used_, KeyOf(round + 1), nullptr));
      Tell(++turn, turns);
      for (size_t i = 0; i < candidates.size(); ++i) {
        Tell(++turn, turns);
        if (failed[i]) continue;
        const auto other =
            candidates[i].variant->RunRound(samples_, used_, KeyOf(round + 1), nullptr);
        failed[i] = !other.ok();
        if (round >= 0 && !failed[i]) saved[i].push_back(now.us() - other->us());
      }
    }
    for (size_t i = 0; i < candidates.size(); ++i) {
      CostChange& change = candidates[i].change;
      if (failed[i]) {
        if (change.kind == CostChange::Kind::kWithoutOp) AddSettled(change.op);
        continue;
      }
      change.records = static_cast<int64_t>(used_);
      change.saved_us = std::min(Median(saved[i]), cost_.us);
      change.us = cost_.us - change.saved_us;
      const auto gains =
          std::count_if(saved[i].begin(), saved[i].end(), [](double one) { return one > 0; });
      change.is_clear = change.saved_us > kClearShare * cost_.us &&
                        gains * 10 >= static_cast<int64_t>(saved[i].size()) * 8;
      cost_.changes.push_back(std::move(change));
    }
    return absl::OkStatus();
  }

  const LocalPipeline& pipeline_;
  const CostOptions& options_;
  const server::PipelineSpec& spec_;
  std::vector<std::unique_ptr<KeptSample>> samples_;
  std::unique_ptr<CostVariant> base_;
  double read_us_ = 0, guess_us_ = 0;
  int rounds_ = kRounds;
  size_t used_ = 0;  // of the samples, in each round
  PlanCost cost_;
};

}  // namespace

absl::StatusOr<PlanCost> MeasureCost(const LocalPipeline& pipeline, const CostOptions& options) {
  return CostMeter(pipeline, options).Measure();
}

absl::StatusOr<MeasuredPipeline> MeasurePipeline(const std::string& pipeline,
                                                 const ConfigChoice& config, CostOptions options) {
  LocalPipeline local;
  {
    Progress progress("index", "records");
    LocalOptions opening;
    opening.config = config;
    opening.progress = [&](int64_t done, int64_t total) { progress.Update(done, total); };
    FW_ASSIGN_OR_RETURN(local, OpenLocalPipeline(pipeline, opening));
  }
  Progress progress("measure", "runs");
  options.progress = [&](int64_t done, int64_t total) { progress.Update(done, total); };
  FW_ASSIGN_OR_RETURN(PlanCost cost, MeasureCost(local, options));
  return MeasuredPipeline{PlannedOf(local), std::move(cost)};
}

}  // namespace feedwater::cli
