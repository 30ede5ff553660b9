// feedwater materialize: what a pipeline's graph makes of each record before its first random op,
// done once and written as tar shards, and a pipeline that goes on from there with the same
// samples.
#include <sys/statvfs.h>

#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/conversion.h"
#include "client/cli/materialize_work.h"
#include "server/base/atomic_file.h"
#include "server/base/escape.h"
#include "server/base/units.h"
#include "server/source/field_reader.h"

namespace feedwater::cli {
namespace {

// Where the rest of a graph would not give what the whole gives.
constexpr const char* kCure = "cure: `cache: {kind: decoded}`, which needs no shards";

// The fields as whoever reads the shards finds them: an array of three axes that looks like an
// image is one then, and not all ops take that.
std::vector<server::FieldSpec> AsRead(std::vector<server::FieldSpec> fields) {
  for (server::FieldSpec& field : fields) {
    if (field.spec.layout != server::Layout::kPlain || field.spec.shape.size() != 3) continue;
    server::FieldRequest request;
    request.name = request.from = field.name;
    request.dtype = field.spec.dtype;
    request.shape = field.spec.shape;
    const auto reader = server::FieldReader::Create(
        {request}, {server::ColumnSpec::Bytes(field.name)}, "the shards");
    if (reader.ok()) field.spec.layout = reader->fields()[0].spec.layout;
  }
  return fields;
}

class Materialize {
 public:
  Materialize(Context& context, const ConversionArguments& arguments)
      : context_(context), conversion_(context, "materialize", arguments) {}

  absl::Status Run() {
    FW_ASSIGN_OR_RETURN(const int64_t shard_bytes, conversion_.ShardBytes());
    FW_RETURN_IF_ERROR(conversion_.Open());
    FW_ASSIGN_OR_RETURN(ConversionWork work,
                        MaterializeWork(conversion_, shard_bytes, &continuation_));
    // Before anything is written.
    FW_RETURN_IF_ERROR(Plan("dataset: {format: webdataset, root: r}\n", AsRead(work.fields)));
    SayWhatIsDone(work);
    FW_RETURN_IF_ERROR(conversion_.Run(std::move(work)));
    FW_RETURN_IF_ERROR(Plan(conversion_.section().text(), conversion_.written().fields()));
    FW_RETURN_IF_ERROR(WritePipeline());
    Report();
    return absl::OkStatus();
  }

 private:
  std::string PipelineText(const std::string& dataset) const {
    return absl::StrCat("version: 1\n", dataset, continuation_.rest);
  }

  // The rest of the graph must be one over the fields that are stored.
  absl::Status Plan(const std::string& dataset,
                    const std::vector<server::FieldSpec>& fields) const {
    const server::PipelineSpec& source = conversion_.local().loaded->spec;
    server::GivenFiles files(source.files());
    FW_ASSIGN_OR_RETURN(
        const server::PipelineSpec spec,
        server::ParsePipeline(PipelineText(dataset), kPipelineFile, source.caps, &files));
    const absl::StatusOr<std::shared_ptr<const server::Plan>> plan = server::Plan::Create(
        spec, fields, static_cast<int64_t>(conversion_.local().dataset().classes().size()));
    if (!plan.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the rest of the graph, over tar shards of what was made before it: ",
                       plan.status().message(), "; ", kCure));
    }
    if (const absl::Status same = server::CheckContinues(source, spec); !same.ok())
      return absl::InvalidArgumentError(absl::StrCat(same.message(), "; ", kCure));
    const std::vector<server::FieldSpec>&now = (*plan)->outputs(),
          &was = conversion_.local().plan().outputs();
    bool is_same = now.size() == was.size();
    for (size_t i = 0; is_same && i < now.size(); ++i) {
      is_same = now[i].name == was[i].name && now[i].spec.dtype == was[i].spec.dtype &&
                now[i].spec.shape == was[i].spec.shape && now[i].max_rows == was[i].max_rows;
    }
    if (is_same) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "the rest of the graph, over tar shards of what was made before it, has other outputs than "
        "the pipeline; ",
        kCure));
  }

  void SayWhatIsDone(const ConversionWork& work) const {
    const server::Dataset& dataset = conversion_.local().dataset();
    std::string bytes;
    int64_t sum = 0;
    bool is_known = true;
    for (const server::FieldSpec& field : work.fields) {
      const absl::StatusOr<int64_t> size = field.spec.ByteSize();
      is_known = is_known && size.ok() && !__builtin_add_overflow(sum, *size, &sum);
    }
    is_known = is_known && !__builtin_mul_overflow(sum, dataset.size(), &sum);
    if (is_known) bytes = absl::StrCat(", ", server::FormatBytes(sum), " in all");
    std::cerr << absl::StrCat("materialize: ", absl::StrJoin(continuation_.ops, ", "),
                              " once for each of ", server::FormatCount(dataset.size(), "record"),
                              bytes, "\n");
  }

  std::string pipeline_file() const {
    return absl::StrCat(conversion_.journal().folder(), "/", kPipelineFile);
  }

  absl::Status WritePipeline() const {
    const std::string head = absl::StrCat(
        "# What `feedwater materialize` left of pipeline ",
        server::Escaped(conversion_.local().loaded->spec.name), ": ",
        absl::StrJoin(continuation_.ops, ", "),
        " was done once.\n# The same seed, epoch and record give the same sample as there.\n");
    return server::WriteFileAtomically(pipeline_file(),
                                       {head, PipelineText(conversion_.section().text())}, 0666);
  }

  void Report() {
    conversion_.Report(&context_, {{"pipeline_file", pipeline_file()}, {"ops", continuation_.ops}},
                       absl::StrCat("go on with ", pipeline_file()));
    const LocalPipeline& local = conversion_.local();
    if (local.loaded->spec.sampler.shuffle == "block" && local.dataset().shard_starts().empty()) {
      std::cerr << "materialize: `shuffle: block` goes by shards, and the dataset has none: epochs "
                   "of the new pipeline have another order; each record's samples are the same\n";
      if (conversion_.journal().shards().size() == 1) {
        std::cerr << "materialize: one shard alone is shuffled within windows only; cure: a "
                     "smaller --shard-bytes, which makes several\n";
      }
    }
  }

  Context& context_;
  Conversion conversion_;
  server::Continuation continuation_;
};

void AddMaterialize(CLI::App& app, Context& context) {
  static ConversionArguments arguments;
  CLI::App* command = AddCommand(
      app, context, "materialize",
      "do a graph's ops before the first random one once, as tar shards, with a pipeline that goes "
      "on from there; needs no daemon",
      "  feedwater materialize imagenet-train /data/imagenet-256 --config feedwater.yaml\n"
      "  feedwater materialize ./val.yaml val-pixels --verify\n"
      "OUT/NAME-000000.tar and so on hold what the ops make, arrays as NumPy files; "
      "OUT/dataset.yaml "
      "reads them; OUT/pipeline.yaml is the rest of the pipeline: the same seed, epoch and record "
      "give the same sample, bit for bit. Ops that only store the same numbers in more bytes "
      "(normalize, one_hot) are left to it. After Ctrl-C, a kill or a full disk the same command "
      "goes on behind the last whole shard.\n"
      "Decoded images are large: resize before the first random op where the training allows it.\n"
      "Records that cannot be made keep their places, are bad samples of the new pipeline, too, "
      "and "
      "are listed in OUT/bad_records.jsonl. Exit status 1 when there are more than --allow-bad.",
      [&context] { return Materialize(context, arguments).Run(); });
  AddConversionOptions(command, &arguments);
}

const server::Registrar<CommandEntry> kRegistrar("materialize",
                                                 {CommandEntry::kPipelines, AddMaterialize});

}  // namespace
}  // namespace feedwater::cli
