// feedwater convert: the records of a pipeline's dataset as tar shards, which tar and the
// webdataset library read, and the `dataset:` section that reads them as the same records.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/conversion.h"
#include "client/cli/convert_options.h"

namespace feedwater::cli {
namespace {

constexpr int kMaxJpegSide = 65'500;

struct Arguments {
  ConversionArguments common;
  std::string jpeg = "keep", resize_fields;
  std::optional<uint64_t> shuffle;
  int resize_max = 0, quality = 90;
};

absl::Status RunConvert(Context& context, const Arguments& arguments) {
  Conversion conversion(context, "convert", arguments.common);
  ConvertOptions options;
  FW_ASSIGN_OR_RETURN(options.shard_bytes, conversion.ShardBytes());
  options.shuffle = arguments.shuffle;
  options.resize_max = arguments.resize_max;
  options.resize_fields = absl::StrSplit(arguments.resize_fields, ',', absl::SkipEmpty());
  options.quality = arguments.quality;
  options.jpeg = *JpegOf(arguments.jpeg);
  FW_RETURN_IF_ERROR(conversion.Open());
  FW_ASSIGN_OR_RETURN(ConversionWork work, ConvertWork(conversion, options));
  FW_RETURN_IF_ERROR(CheckNothingIsInPixels(conversion, options, work));
  FW_RETURN_IF_ERROR(conversion.Run(std::move(work)));
  conversion.Report(&context, nlohmann::ordered_json::object(),
                    absl::StrCat("read them with ", conversion.section().file()));
  return absl::OkStatus();
}

void AddConvert(CLI::App& app, Context& context) {
  static Arguments arguments;
  CLI::App* command = AddCommand(
      app, context, "convert",
      "write the records of a pipeline's dataset as tar shards, and the section that reads them; "
      "needs no daemon",
      "  feedwater convert imagenet-train /data/imagenet-shards --config feedwater.yaml\n"
      "  feedwater convert ./photos.yaml shards --shuffle 7 --resize-max 512 --quality 92\n"
      "  feedwater convert ./photos.yaml shards --jpeg baseline   # progressive JPEGs, lossless\n"
      "  feedwater convert ./photos.yaml shards --jpeg coefficients   # fast without a cache\n"
      "OUT/NAME-000000.tar and so on are ordinary archives, for tar and for the webdataset "
      "library; "
      "OUT/dataset.yaml reads them as the same records: put it into the pipeline in the place of "
      "its dataset. The graph is not run. After Ctrl-C, a kill or a full disk the same command "
      "goes on behind the last whole shard.\n"
      "Records that cannot be read or parsed, and images that have to be decoded and cannot be, "
      "are left out and listed in OUT/bad_records.jsonl. All others are converted. Exit status 1 "
      "when there are more than --allow-bad of them.",
      [&context] { return RunConvert(context, arguments); });
  AddConversionOptions(command, &arguments.common);
  command
      ->add_option("--shuffle", arguments.shuffle,
                   "write the records in the order of epoch 0 of `shuffle: full` with this seed; "
                   "default: as they are numbered")
      ->type_name("SEED");
  CLI::Option* resize_max =
      command
          ->add_option(
              "--resize-max", arguments.resize_max,
              "shrink images whose longer side is larger than this, antialiased, and write "
              "them as JPEG; the others keep their bytes. An error where a field is in "
              "pixels of them and would stay as it is: boxes, keypoints, of coco and voc also "
              "width, height and area")
          ->check(CLI::Range(1, kMaxJpegSide))
          ->type_name("PX");
  command
      ->add_option("--resize-fields", arguments.resize_fields,
                   "fields whose images --resize-max shrinks, with ',' between them; default: all, "
                   "and an error where one of several seems to be a mask, whose values JPEG would "
                   "change")
      ->needs(resize_max)
      ->type_name("FIELDS");
  command->add_option("--quality", arguments.quality, "JPEG quality of --resize-max")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  command
      ->add_option(
          "--jpeg", arguments.jpeg,
          "baseline: progressive and arithmetic-coded JPEGs become baseline ones of the "
          "same coefficients, and so of the same pixels. coefficients: JPEGs become what "
          "the coefficient cache keeps of them (.fwcs), with the same pixels, in about 1.3 "
          "times the bytes: training decodes them as fast as from that cache, from the "
          "first epoch on; only Feedwater reads them, and of the metadata they have the "
          "orientation alone")
      ->capture_default_str()
      ->check(CLI::IsMember({"keep", "baseline", "coefficients"}));
}

const server::Registrar<CommandEntry> kRegistrar("convert", {CommandEntry::kPipelines, AddConvert});

}  // namespace
}  // namespace feedwater::cli
