#include "client/cli/describe_pipeline.h"

#include <algorithm>
#include <cctype>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/json_text.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/mix_text.h"
#include "client/cli/text.h"
#include "server/base/escape.h"
#include "server/base/units.h"
#include "server/service/messages.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;

std::string FieldText(const v1::Field& field) {
  std::string name = v1::DType_Name(field.dtype());
  name = name.substr(name.find('_') + 1);
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  const auto add = [](std::string* out, int64_t size) {
    size < 0 ? absl::StrAppend(out, "?") : absl::StrAppend(out, size);
  };
  return absl::StrCat(name, "[", absl::StrJoin(field.shape(), ",", add), "]",
                      field.layout() == "plain" ? "" : " " + field.layout(),
                      field.max_rows() > 0
                          ? absl::StrCat(", at most ", server::FormatCount(field.max_rows(), "row"))
                          : "");
}

// Of a file that was planned without its data, what only the data can tell is left out.
bool HasData(const v1::DescribePipelineResponse& pipeline) { return pipeline.records() >= 0; }

json PipelineJson(const v1::DescribePipelineResponse& pipeline) {
  json fields = json::array();
  for (const v1::Field& field : pipeline.fields()) {
    fields.push_back({{"name", field.name()},
                      {"dtype", FieldText(field).substr(0, FieldText(field).find('['))},
                      {"shape", std::vector<int64_t>(field.shape().begin(), field.shape().end())},
                      {"layout", field.layout()},
                      {"doc", field.doc()}});
    if (field.max_rows() > 0) fields.back()["max_rows"] = field.max_rows();
  }
  json document = {
      {"pipeline", pipeline.name()},
      {"batch_size", pipeline.batch_size()},
      {"seed", pipeline.seed()},
      {"fields", fields},
      {"plan", std::vector<std::string>(pipeline.plan().begin(), pipeline.plan().end())},
      {"pipeline_digest", pipeline.pipeline_digest()}};
  if (HasData(pipeline)) {
    document["records"] = pipeline.records();
    if (const json mix = MixJson(pipeline); !mix.is_null()) {
      document["mix"] = mix;
      document["positions_per_epoch"] = pipeline.positions_per_epoch();
    }
    document["classes"] =
        std::vector<std::string>(pipeline.classes().begin(), pipeline.classes().end());
    document["dataset_digest"] = pipeline.dataset_digest();
    document["notes"] = pipeline.dataset_notes();
  }
  return document;
}

void PrintPipeline(const v1::DescribePipelineResponse& pipeline) {
  std::cout << Bold(server::Escaped(pipeline.name())) << "\n  ";
  if (HasData(pipeline)) {
    std::cout << server::FormatCount(pipeline.records(), "record") << ", "
              << server::FormatCount(pipeline.classes_size(), "class") << ", ";
  }
  std::cout << "batch size "
            << (pipeline.batch_size() > 0 ? absl::StrCat(pipeline.batch_size())
                                          : "left to the trainer")
            << ", seed " << pipeline.seed() << "\n";
  if (pipeline.mix_size() > 0) {
    std::cout << "\n"
              << Bold("mix") << ", "
              << server::FormatCount(pipeline.positions_per_epoch(), "sample") << " an epoch\n";
    for (const std::string& line : MixLines(pipeline)) std::cout << "  " << line << "\n";
  }
  if (!pipeline.dataset_notes().empty())
    std::cout << Wrapped(server::Escaped(pipeline.dataset_notes()), 2);
  size_t name_width = 0, type_width = 0;
  for (const v1::Field& field : pipeline.fields()) {
    name_width = std::max(name_width, field.name().size());
    type_width = std::max(type_width, FieldText(field).size());
  }
  std::cout << "\n" << Bold("outputs, one sample") << "\n";
  for (const v1::Field& field : pipeline.fields()) {
    std::cout << "  " << Padded(field.name(), name_width) << "  "
              << (field.doc().empty() ? FieldText(field) : Padded(FieldText(field), type_width))
              << (field.doc().empty() ? "" : "  " + field.doc()) << "\n";
  }
  std::cout << "\n" << Bold("plan") << "\n";
  for (const std::string& step : pipeline.plan())
    std::cout << StepLines("  ", server::Escaped(step));
  std::cout << "\n" << Bold("digests") << "\n";
  if (HasData(pipeline)) std::cout << "  dataset   " << pipeline.dataset_digest() << "\n";
  std::cout << "  pipeline  " << pipeline.pipeline_digest() << "\n";
}

// The answer that a daemon would give, from the file and, with a configuration, its data.
absl::StatusOr<v1::DescribePipelineResponse> DescribeFile(const std::string& pipeline,
                                                          const ConfigChoice& config) {
  const absl::StatusOr<PlannedPipeline> planned = PlanPipeline(pipeline, config);
  // Whatever is wrong here is wrong with the input.
  if (!planned.ok()) return absl::InvalidArgumentError(planned.status().message());
  v1::DescribePipelineResponse response;
  response.set_name(planned->spec.name);
  for (const server::FieldSpec& field : planned->plan->outputs()) {
    v1::Field* out = response.add_fields();
    out->set_name(field.name);
    out->set_dtype(static_cast<v1::DType>(field.spec.dtype));
    for (int64_t size : field.spec.shape) out->add_shape(size);
    out->set_layout(std::string(server::LayoutName(field.spec.layout)));
    out->set_doc(field.doc);
    out->set_max_rows(field.max_rows);
  }
  for (const std::string& step : planned->plan->Describe()) response.add_plan(step);
  response.set_batch_size(planned->spec.batch_size);
  response.set_seed(planned->spec.sampler.seed);
  response.set_pipeline_digest(planned->spec.digest);
  response.set_records(planned->records);
  if (planned->dataset != nullptr) {
    for (const std::string& name : planned->dataset->classes()) response.add_classes(name);
    FW_RETURN_IF_ERROR(server::TellMix(*planned->dataset, &response));
    response.set_dataset_digest(planned->dataset->digest());
    response.set_dataset_notes(planned->dataset->notes());
  }
  return response;
}

absl::StatusOr<v1::DescribePipelineResponse> DescribeByDaemon(const Context& context,
                                                              const std::string& name) {
  auto control = context.Control();
  if (!control.ok()) return control.status();
  grpc::ClientContext call;
  v1::DescribePipelineRequest request;
  request.mutable_pipeline()->set_name(name);
  v1::DescribePipelineResponse pipeline;
  const grpc::Status got = (*control)->DescribePipeline(&call, request, &pipeline);
  if (!got.ok()) return FromGrpc(got);
  return pipeline;
}

}  // namespace

absl::Status DescribePipeline(const Context& context, const std::string& name,
                              const std::string& config) {
  const bool is_local = IsPipelineFile(name) || !config.empty();
  const absl::StatusOr<v1::DescribePipelineResponse> pipeline =
      is_local ? DescribeFile(name, {config, context.address}) : DescribeByDaemon(context, name);
  if (!pipeline.ok()) return pipeline.status();
  if (!pipeline->warning().empty())
    std::cerr << "feedwater: " << server::Escaped(pipeline->warning()) << "\n";
  if (context.json) {
    PrintJson(PipelineJson(*pipeline));
  } else {
    PrintPipeline(*pipeline);
  }
  return absl::OkStatus();
}

}  // namespace feedwater::cli
