// The pipeline's digest: the same for everything that leaves the bytes alone, another for
// everything that may change one.
#include "server/graph/digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_replace.h"
#include "server/graph/pipeline_spec.h"

namespace feedwater::server {
namespace {

constexpr const char* kPipeline = R"(version: 1
dataset: {format: image_folder, root: imagenet, path: train}
sampler: {shuffle: full, seed: 42, last: drop}
graph:
  - decode: {in: data, out: image}
  - random_resized_crop: {in: image, size: [224, 224], scale: [0.08, 1.0]}
  - random_horizontal_flip: {in: image, p: 0.5}
  - normalize: {in: image, mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]}
batch: {size: 256, graph: [{mixup: {in: [image, label], alpha: 0.2}}]}
outputs: [image, label]
)";

std::string DigestOf(const std::string& text) {
  const auto spec = ParsePipeline(text, "p.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status() << "\n" << text;
  return spec.ok() ? spec->digest : "";
}

std::string Changed(const std::string& from, const std::string& to) {
  const std::string text = absl::StrReplaceAll(kPipeline, {{from, to}});
  EXPECT_NE(text, kPipeline) << "nothing to replace: " << from;
  return text;
}

TEST(Digest, WhatLeavesTheBytesAloneLeavesTheDigestAlone) {
  const std::string digest = DigestOf(kPipeline);
  const std::map<std::string, std::string> same = {
      {"a comment", Changed("version: 1", "# words\nversion: 1  # more")},
      {"the order of keys", Changed("{format: image_folder, root: imagenet, path: train}",
                                    "{path: train, root: imagenet, format: image_folder}")},
      {"the order of parameters",
       Changed("size: [224, 224], scale: [0.08, 1.0]", "scale: [0.08, 1.0], size: [224, 224]")},
      {"a square as one number", Changed("[224, 224]", "224")},
      {"a number's spelling", Changed("[0.08, 1.0]", "[8e-2, 1]")},
      {"a default written out",
       Changed("scale: [0.08, 1.0]", "interpolation: bilinear, ratio: [0.75, 1.3333333333333333]")},
      {"a default left out", Changed("in: image, p: 0.5", "in: image")},
      {"a field's default name", Changed("{in: image, p: 0.5}", "{p: 0.5, out: image}")},
      {"an op without a map", Changed("decode: {in: data, out: image}", "decode")},
      {"a later parameter's default",
       Changed("decode: {in: data", "decode: {fast_scale: false, in: data")},
      {"quotes", Changed("root: imagenet", "root: \"imagenet\"")},
      {"block style", Changed("sampler: {shuffle: full, seed: 42, last: drop}",
                              "sampler:\n  shuffle: full\n  last: drop")},
      {"the seed", Changed("seed: 42", "seed: 43")},
      {"the batch size", Changed("size: 256", "size: 128")},
      {"default outputs left out", Changed("outputs: [image, label]\n", "")},
      {"an output of which nothing is said", Changed("[image, label]\n", "[image, {label: }]\n")},
      {"default policy and limits",
       Changed("version: 1", "version: 1\non_bad_sample: fail\nlimits: {max_pixels: 64000000}")},
      {"how many may be bad", Changed("version: 1", "version: 1\nmax_bad_fraction: 0.5")},
      {"block_records of another shuffle", Changed("last: drop", "block_records: 77, last: drop")},
  };
  for (const auto& [what, text] : same) EXPECT_EQ(DigestOf(text), digest) << what << "\n" << text;
}

TEST(Digest, WhatMayChangeAByteChangesTheDigest) {
  std::map<std::string, std::string> seen = {{DigestOf(kPipeline), "the original"}};
  const std::map<std::string, std::string> other = {
      {"the path", Changed("path: train", "path: val")},
      {"the format", Changed("format: image_folder", "format: tar")},
      {"a key of the dataset", Changed("path: train", "path: train, extra: 1")},
      {"shuffle", Changed("shuffle: full", "shuffle: none")},
      {"shuffle block", Changed("shuffle: full", "shuffle: block")},
      {"block_records", Changed("shuffle: full", "shuffle: block, block_records: 77")},
      {"last", Changed("last: drop", "last: pad")},
      {"shard", Changed("last: drop", "last: drop, shard: interleave")},
      {"a size", Changed("[224, 224]", "[224, 225]")},
      {"a scale", Changed("[0.08, 1.0]", "[0.08000000000000002, 1.0]")},
      {"a probability", Changed("p: 0.5", "p: 0.25")},
      {"an op less", Changed("  - random_horizontal_flip: {in: image, p: 0.5}\n", "")},
      {"another op", Changed("random_horizontal_flip", "random_vertical_flip")},
      {"an interpolation", Changed("[224, 224]", "[224, 224], interpolation: bicubic")},
      {"a mean", Changed("123.675", "123.676")},
      {"a dtype", Changed("mean:", "dtype: float16, mean:")},
      {"a layout", Changed("mean:", "layout: HWC, mean:")},
      {"mixup's alpha", Changed("alpha: 0.2", "alpha: 0.3")},
      {"no batch op", Changed(", graph: [{mixup: {in: [image, label], alpha: 0.2}}]", "")},
      {"the order of outputs", Changed("[image, label]\n", "[label, image]\n")},
      {"an output more", Changed("[image, label]\n", "[image, label, sample_id]\n")},
      {"a bound of rows", Changed("[image, label]\n", "[image, {label: {max_rows: 8}}]\n")},
      {"another bound", Changed("[image, label]\n", "[image, {label: {max_rows: 9}}]\n")},
      {"padded", Changed("[image, label]\n", "[image, {label: {pad_to: 8}}]\n")},
      {"padded by another number",
       Changed("[image, label]\n", "[image, {label: {pad_to: 8, pad_value: -1}}]\n")},
      {"the policy", Changed("version: 1", "version: 1\non_bad_sample: substitute")},
      {"the third policy", Changed("version: 1", "version: 1\non_bad_sample: skip_with_count")},
      {"a limit", Changed("version: 1", "version: 1\nlimits: {max_scans: 99}")},
      {"decoding smaller", Changed("out: image}", "out: image, fast_scale: true}")},
      {"indices", Changed("out: image}", "out: image, mode: index}")},
      {"orientation", Changed("out: image}", "out: image, orientation: exif}")},
  };
  for (const auto& [what, text] : other) {
    const auto [it, is_new] = seen.emplace(DigestOf(text), what);
    EXPECT_TRUE(is_new) << what << " has the digest of " << it->second;
  }
}

TEST(Digest, WordsCannotPretendToBeStructure) {
  EXPECT_NE(
      DigestOf(Changed("root: imagenet, path: train", "root: imagenet, path: \"a\\\",\\\"b\"")),
      DigestOf(Changed("root: imagenet, path: train", "root: imagenet, path: [a, b]")));
}

TEST(Digest, IsXxh3Of128Bits) {
  EXPECT_EQ(Digest128(""), "99aa06d3014798d86001c324468d497f");  // the published value for no input
}

// Masks beside an image were resampled as it was, until they moved as masks: saved cursors of such
// pipelines are refused, and no others.
TEST(Digest, SaysWhereFieldsMoveTogether) {
  const auto text = [](const std::string& in) {
    const auto spec = ParsePipeline(
        absl::StrCat("version: 1\ndataset: {format: mnist, root: r}\ngraph: [{resize: {in: ", in,
                     ", size: [8, 8]}}]\n"),
        "p.yaml");
    EXPECT_TRUE(spec.ok()) << spec.status();
    return *CanonicalPipeline(*spec);
  };
  EXPECT_THAT(text("image"), ::testing::Not(::testing::HasSubstr(" joint")));
  EXPECT_THAT(text("[image, label]"), ::testing::HasSubstr(" joint\n"));
}

TEST(Digest, StaysWhatItIs) {
  // Cursors of running jobs hold it: a change here means that every saved cursor is refused. Raise
  // kMeaning only on purpose.
  const auto spec = ParsePipeline("version: 1\ndataset: {format: mnist, root: r}\n", "p.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(*CanonicalPipeline(*spec),
            "feedwater pipeline 2\n"
            "dataset {\"format\":\"mnist\",\"root\":\"r\",}\n"
            "sampler shuffle=\"none\" last=\"partial\" shard=\"batch\"\n"
            "outputs image,label\n"
            "on_bad_sample fail\n"
            "limits max_pixels=64000000 max_scans=100 max_decode_ms=1000\n");
}

}  // namespace
}  // namespace feedwater::server
