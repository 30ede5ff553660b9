#include "client/cli/original_image.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/picture.h"
#include "client/cli/sample_batch.h"
#include "server/codec/decode_need.h"
#include "server/codec/file_header.h"

namespace feedwater::cli {

absl::StatusOr<OriginalImage> OriginalImage::Of(const LocalPipeline& local, size_t field,
                                                const server::Tensor& value, int most_side) {
  OriginalImage image;
  if (value.spec.layout != server::Layout::kEncoded) {
    FW_ASSIGN_OR_RETURN(const Picture picture, ToPicture(value, {}));
    image.pixels = picture.image;
    image.size = {picture.image.cols, picture.image.rows};
    return image;
  }
  const server::ImageLimits& limits = local.loaded->spec.limits;
  FW_ASSIGN_OR_RETURN(
      const server::DecodeNeed need,
      server::NeedOfDecoding({value.data, value.bytes()}, /*apply_orientation=*/true, limits));
  image.size = need.size;
  FW_ASSIGN_OR_RETURN(const server::FileHeader header,
                      server::ReadFileHeader({value.data, value.bytes()}, limits));
  image.is_turned = header.orientation != 1 && !header.is_turned_always;
  const double scale =
      std::min(1.0, most_side / static_cast<double>(std::max(need.size.width, need.size.height)));
  const auto scaled = [&](int side) { return std::max(1L, std::lround(scale * side)); };
  server::DecoderSetup setup;
  setup.text = absl::StrCat(
      "version: 1\ndataset: {format: none}\ngraph:\n"
      "  - decode: {in: original, out: image, orientation: exif}\n  - resize: {in: image, size: "
      "[",
      scaled(need.size.height), ", ", scaled(need.size.width), "]}\noutputs: [image]\n");
  setup.file_name = local.file;
  setup.caps.images = limits;
  setup.fields = {local.dataset().fields()[field]};
  setup.fields[0].name = "original";
  FW_ASSIGN_OR_RETURN(const std::shared_ptr<const server::Plan> plan, server::PlanOf(setup));
  FW_ASSIGN_OR_RETURN(SampleBatch batch,
                      SampleBatch::Create(*plan, 1, local.NewMaker(plan, std::move(setup))));
  server::Record record;
  record.fields = {value};
  server::SampleInput input;
  input.record = &record;
  FW_RETURN_IF_ERROR(batch.Run(input, 0));
  FW_ASSIGN_OR_RETURN(const Picture picture, ToPicture(batch.Output(0, 0), {}));
  image.pixels = picture.image;
  return image;
}

}  // namespace feedwater::cli
