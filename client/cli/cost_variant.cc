#include "client/cli/cost_variant.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/base/clock.h"
#include "server/pipeline/kept_fields.h"

namespace feedwater::cli {
namespace {

constexpr int64_t kMaxBatchBytes = int64_t{64} << 20;  // of one variant
constexpr size_t kAlignment = 64;

// What looking at the clock takes of what it measures.
int64_t ClockOverheadNs() {
  int64_t least = INT64_MAX;
  for (int i = 0; i < 200; ++i) {
    const int64_t begin = server::ThreadCpuNs();
    least = std::min(least, server::ThreadCpuNs() - begin);
  }
  return least;
}

int64_t SampleBytes(const server::Plan& plan) {
  int64_t bytes = plan.staging_bytes_per_sample();
  for (const server::FieldSpec& output : plan.outputs()) {
    const absl::StatusOr<int64_t> one = output.SampleBytes();
    if (!one.ok() || __builtin_add_overflow(bytes, *one, &bytes)) return kMaxBatchBytes;
  }
  return std::max<int64_t>(bytes, 1);
}

}  // namespace

KeptSample::KeptSample(const server::Record& record, int64_t number, int64_t position)
    : number_(number), position_(position) {
  for (const server::Tensor& field : record.fields) {
    // Kernels may load whole vectors at a field's end.
    const size_t room = (field.bytes() / kAlignment + 2) * kAlignment;
    memory_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(kAlignment, room)));
    server::Tensor copy = field;
    copy.data = memory_.back().get();
    if (copy.data != nullptr && field.bytes() > 0) {
      std::memcpy(copy.data, field.data, field.bytes());
    }
    record_.fields.push_back(std::move(copy));
    bytes_ += static_cast<int64_t>(field.bytes());
  }
}

server::SampleInput KeptSample::Input(server::PhiloxKey key) const {
  server::SampleInput input;
  input.record = &record_;
  input.sample_id = number_;
  input.position = position_;
  input.key = key;
  return input;
}

CostVariant::CostVariant(std::shared_ptr<const server::Plan> plan, int64_t places)
    : plan_(std::move(plan)),
      places_(std::clamp<int64_t>(kMaxBatchBytes / SampleBytes(*plan_), 1, places)) {}

absl::Status CostVariant::Open() {
  if (batch_ != nullptr) return absl::OkStatus();
  auto maker = std::make_unique<server::InProcessMaker>();
  maker->Use(plan_.get(), nullptr);
  FW_ASSIGN_OR_RETURN(SampleBatch batch, SampleBatch::Create(*plan_, places_, std::move(maker)));
  batch_ = std::make_unique<SampleBatch>(std::move(batch));
  return absl::OkStatus();
}

absl::Status CostVariant::Run(const KeptSample& sample, server::PhiloxKey key, size_t k) {
  const server::SampleInput input = sample.Input(key);
  const auto place = static_cast<int64_t>(k);
  return starts_behind_prefix_ ? batch_->RunFromPrefix(input, place) : batch_->Run(input, place);
}

absl::Status CostVariant::Make(const KeptSample& sample, server::PhiloxKey key) {
  FW_RETURN_IF_ERROR(Open());
  return Run(sample, key, 0);
}

absl::StatusOr<RoundTime> CostVariant::RunRound(const Samples& samples, size_t count,
                                                server::PhiloxKey key,
                                                std::vector<int64_t>* pass_ns) {
  const Samples& from = kept_.empty() ? samples : kept_;
  FW_RETURN_IF_ERROR(Open());
  for (size_t k = 0; k < std::min<size_t>(count, static_cast<size_t>(places_)); ++k) {
    FW_RETURN_IF_ERROR(Run(*from[k], key, k));
    std::vector<int64_t> unused(plan_->passes() + 1);
    if (pass_ns != nullptr) {
      FW_RETURN_IF_ERROR(
          batch_->RunTimed(from[k]->Input(key), static_cast<int64_t>(k), absl::MakeSpan(unused)));
    }
  }
  int64_t sample_ns = 0, batch_ns = 0;
  uint64_t batches = 0;
  for (size_t i = 0; i < count;) {
    const auto here =
        static_cast<size_t>(std::min<int64_t>(places_, static_cast<int64_t>(count - i)));
    const int64_t begin = server::ThreadCpuNs();
    for (size_t k = 0; k < here; ++k, ++i) {
      FW_RETURN_IF_ERROR(pass_ns == nullptr
                             ? Run(*from[i], key, k)
                             : batch_->RunTimed(from[i]->Input(key), static_cast<int64_t>(k),
                                                absl::MakeSpan(*pass_ns)));
    }
    const int64_t made = server::ThreadCpuNs();
    sample_ns += made - begin;
    if (!plan_->finishes_batches()) continue;
    FW_RETURN_IF_ERROR(batch_->Finish(static_cast<int64_t>(here), batches++, key));
    batch_ns += server::ThreadCpuNs() - made;
  }
  if (pass_ns != nullptr) {
    const int64_t clock = ClockOverheadNs() * static_cast<int64_t>(count);
    for (int64_t& ns : *pass_ns) ns = std::max<int64_t>(0, ns - clock);
  }
  batch_.reset();
  const double samples_made = static_cast<double>(std::max<size_t>(count, 1)) * 1e3;
  return RoundTime{static_cast<double>(sample_ns) / samples_made,
                   static_cast<double>(batch_ns) / samples_made};
}

absl::StatusOr<CostVariant::Kept> CostVariant::KeepPrefixes(const Samples& samples, size_t count) {
  FW_RETURN_IF_ERROR(Open());
  Samples kept;
  int64_t bytes = 0;
  for (size_t i = 0; i < std::min(count, samples.size()); ++i) {
    const auto& sample = samples[i];
    bool is_kept = false;
    FW_RETURN_IF_ERROR(batch_->RunKeeping(
        sample->Input({}), server::kMaxKeptFieldBytes, [&](const server::Record& record) {
          kept.push_back(std::make_unique<KeptSample>(record, sample->Input({}).sample_id,
                                                      sample->Input({}).position));
          is_kept = true;
        }));
    if (!is_kept) return Kept{};
    if (i > 0 && bytes + kept.back()->bytes() > kMaxKeptBytes) {
      kept.pop_back();
      break;
    }
    bytes += kept.back()->bytes();
  }
  kept_ = std::move(kept);
  starts_behind_prefix_ = true;
  batch_.reset();
  return Kept{kept_.size(), bytes};
}

absl::StatusOr<CostVariant::Kept> CostVariant::KeepCoefficients(
    const Samples& samples, size_t count, const std::vector<bool>& as_coefficients) {
  server::InProcessMaker maker;
  maker.Use(plan_.get(), nullptr);
  Samples kept;
  int64_t bytes = 0, held = 0;  // of a cache, and here, where the record's own bytes stay, too
  bool has_any = false;
  for (size_t n = 0; n < std::min(count, samples.size()) && held < kMaxKeptBytes; ++n) {
    const auto& sample = samples[n];
    held += sample->bytes();
    const server::SampleInput input = sample->Input({});
    kept.push_back(std::make_unique<KeptSample>(sample->record(), input.sample_id, input.position));
    for (size_t i = 0; i < as_coefficients.size(); ++i) {
      const server::Tensor& field = sample->record().fields[i];
      bytes += static_cast<int64_t>(field.bytes());
      if (!as_coefficients[i]) continue;
      std::vector<std::byte> document;
      FW_RETURN_IF_ERROR(maker.Pack({field.data, field.bytes()}, plan_->limits(), &document));
      if (document.empty()) continue;
      has_any = true;
      held += static_cast<int64_t>(document.size());
      bytes += static_cast<int64_t>(document.size()) - static_cast<int64_t>(field.bytes());
      server::Tensor packed = field;
      packed.spec.shape = {static_cast<int64_t>(document.size())};
      document.resize(document.size() + kAlignment);
      documents_.push_back(std::move(document));
      packed.data = documents_.back().data();
      kept.back()->Replace(i, std::move(packed));
    }
  }
  if (!has_any) return Kept{};
  kept_ = std::move(kept);
  return Kept{kept_.size(), bytes};
}

}  // namespace feedwater::cli
