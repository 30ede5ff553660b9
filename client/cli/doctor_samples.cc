#include "client/cli/doctor_samples.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/interrupt.h"
#include "client/cli/mix_text.h"
#include "client/cli/sample_batch.h"
#include "server/base/clock.h"
#include "server/base/units.h"
#include "server/base/yaml_word.h"
#include "server/codec/image.h"
#include "server/codec/jpeg/markers.h"
#include "server/storage/fault.h"

namespace feedwater::cli {
namespace {

constexpr int64_t kRecordsLookedAt = 64;
constexpr int64_t kLongest = 10'000'000'000;  // ns

bool IsProgressive(const server::Dataset& dataset, const server::Record& record, bool* is_jpeg) {
  for (size_t f = 0; f < dataset.fields().size(); ++f) {
    if (dataset.fields()[f].spec.layout != server::Layout::kEncoded) continue;
    const server::Tensor& image = record.fields[f];
    const auto header = server::ReadJpegHeader({image.data, image.bytes()});
    if (!header.ok()) continue;
    *is_jpeg = true;
    return header->has_several_scans;
  }
  return false;
}

// A pipeline that decodes the fields which are images in this record; "" where none is.
std::string DecodingPipeline(const FoundDataset& found, const server::Record& record) {
  const std::vector<server::FieldSpec>& fields = found.dataset->fields();
  server::ImageWorkspace images;
  std::string graph, outputs;
  for (size_t f = 0; f < fields.size(); ++f) {
    if (fields[f].spec.layout != server::Layout::kEncoded) continue;
    const server::Tensor& bytes = record.fields[f];
    if (!server::ReadImageInfo({bytes.data, bytes.bytes()}, false, {}, images).ok()) continue;
    const std::string image = absl::StrCat("doctors_image_", f);
    absl::StrAppend(&graph, "  - decode: {in: ", server::YamlWord(fields[f].name), ", out: ", image,
                    "}\n  - resize: {in: ", image, ", size: [1, 1]}\n");
    absl::StrAppend(&outputs, outputs.empty() ? "" : ", ", image);
  }
  if (graph.empty()) return "";
  return absl::StrCat("version: 1\n", found.section, "graph:\n", graph, "outputs: [", outputs,
                      "]\n");
}

// Makes samples of records, as long as it can.
class Trial {
 public:
  Trial(const FoundDataset& found, const ConfigChoice& config) : found_(found), config_(config) {}

  // `record`: one that could be read. What stands in the way is kept, and told by Text().
  void Start(const server::Record& record) {
    is_started_ = true;
    const absl::Status started = TryToStart(record);
    if (!started.ok()) GiveUp(started);
  }
  bool is_started() const { return is_started_; }

  // Why the record is bad. OK also where that is not known.
  absl::Status Run(int64_t number, const server::Record& record) {
    if (!batch_.has_value()) return absl::OkStatus();
    server::SampleInput input;
    input.record = &record;
    input.sample_id = input.position = number;
    input.key = server::EpochKey(pipeline_->loaded->spec.sampler.seed, /*epoch=*/0);
    const absl::Status status = batch_->Run(input, 0);
    const bool is_of_record = !server::TellsOfTheMachine(status) &&
                              !absl::IsFailedPrecondition(status) && !absl::IsInternal(status);
    if (status.ok() || is_of_record) {
      ++runs_;
      return status;
    }
    GiveUp(status);
    return absl::OkStatus();
  }

  // "read and decoded", and what was not done.
  std::string Text(int64_t looked_at) const {
    const std::string done =
        runs_ == 0 ? "read and parsed"
                   : absl::StrCat(runs_ < looked_at ? absl::StrCat("read, ", runs_, " of them ")
                                                    : "read and ",
                                  decodes_ ? "decoded" : "run through the graph");
    if (!why_not_.empty()) return absl::StrCat(done, ", no more since ", why_not_);
    if (decodes_) return done;
    return absl::StrCat(done, found_.pipeline.has_value() ? ", which decodes no image"
                                                          : " (nothing in them seems an image)");
  }

 private:
  absl::Status TryToStart(const server::Record& record) {
    pipeline_ = found_.pipeline.has_value() ? &*found_.pipeline : nullptr;
    if (pipeline_ == nullptr) {
      const std::string text = DecodingPipeline(found_, record);
      if (text.empty()) return absl::OkStatus();
      FW_ASSIGN_OR_RETURN(own_, OpenOver(found_.dataset, text, config_));
      pipeline_ = &*own_;
    }
    const server::PipelineSpec& spec = pipeline_->loaded->spec;
    const auto classes = static_cast<int64_t>(found_.dataset->classes().size());
    FW_ASSIGN_OR_RETURN(
        plan_, server::Plan::Create(spec, found_.dataset->fields(), classes, {.fuse = false}));
    decodes_ = plan_->decodes();
    FW_ASSIGN_OR_RETURN(
        batch_, SampleBatch::Create(
                    *plan_, /*samples=*/1,
                    pipeline_->NewMaker(plan_, SetupOf(spec, *found_.dataset, /*fuse=*/false))));
    return absl::OkStatus();
  }

  void GiveUp(const absl::Status& status) {
    why_not_ = std::string(status.message());
    batch_.reset();
  }

  const FoundDataset& found_;
  const ConfigChoice& config_;
  bool is_started_ = false, decodes_ = false;
  std::optional<LocalPipeline> own_;
  const LocalPipeline* pipeline_ = nullptr;
  std::shared_ptr<const server::Plan> plan_;
  std::optional<SampleBatch> batch_;
  int64_t runs_ = 0;
  std::string why_not_;
};

Finding SamplesFinding(const server::Dataset& dataset, const Trial& trial, int64_t looked_at,
                       int64_t bad, const std::string& first_bad) {
  const std::string of =
      absl::StrCat(looked_at, " of ", server::FormatCount(dataset.size(), "record"));
  if (bad == 0)
    return Good("samples", absl::StrCat(of, " ", trial.Text(looked_at), ": none of these is bad"));
  return Failure(
      "samples",
      absl::StrCat(of, " ", trial.Text(looked_at), ": ", bad, " of these ", bad == 1 ? "is" : "are",
                   " bad, first ", first_bad),
      "feedwater verify PIPELINE.yaml lists all of them; with on_bad_sample: substitute, "
      "training continues without them");
}

}  // namespace

std::vector<Finding> CheckSamples(const FoundDataset& found, const ConfigChoice& config,
                                  int64_t record_bytes_max) {
  const server::Dataset& dataset = *found.dataset;
  if (record_bytes_max > server::RecordReader::kMaxRecordBytes) return {};  // a finding of its own
  Trial trial(found, config);
  StoredRecord stored;
  int64_t jpegs = 0, progressive = 0, bad = 0, looked_at = 0;
  std::string first_bad;
  const int64_t count = std::min(dataset.size(), kRecordsLookedAt);
  const int64_t until = server::MonotonicNs() + kLongest;
  for (int64_t i = 0; i < count && !Interrupted(); ++i) {
    if (i > 0 && server::MonotonicNs() > until) break;
    const int64_t record = static_cast<int64_t>(static_cast<__int128>(i) * dataset.size() / count);
    if (const absl::Status read = ReadStored(dataset, record, &stored); !read.ok()) {
      return {Failure("samples", absl::StrCat("record ", record, ": ", read.message()),
                      "put the file back as it was when it was indexed")};
    }
    ++looked_at;
    absl::Status status = stored.parsed;
    if (status.ok()) {
      bool is_jpeg = false;
      progressive += IsProgressive(dataset, stored.record, &is_jpeg);
      jpegs += is_jpeg;
      if (!trial.is_started()) trial.Start(stored.record);
      status = trial.Run(record, stored.record);
    }
    if (!status.ok() && bad++ == 0)
      first_bad = absl::StrCat("record ", record, ": ", status.message());
  }
  std::vector<Finding> findings = {SamplesFinding(dataset, trial, looked_at, bad, first_bad)};
  if (jpegs == 0) return findings;
  const std::string text =
      absl::StrCat(progressive, " of ", jpegs, " JPEGs looked at are progressive");
  if (progressive == 0) {
    findings.push_back(Good("images", text));
  } else {
    findings.push_back(Warning(
        "images", text,
        absl::StrCat(ConvertText(dataset, " --jpeg baseline"),
                     "; that loses nothing: of a progressive image everything has to be decoded, "
                     "of a baseline one the crop alone")));
  }
  return findings;
}

}  // namespace feedwater::cli
