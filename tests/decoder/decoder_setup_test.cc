// What a decoder is told before its first sample, and that nothing else is taken for it.
#include "server/decoder/decoder_setup.h"

#include <gtest/gtest.h>

namespace feedwater::server {
namespace {

DecoderSetup Some() {
  DecoderSetup setup;
  setup.text =
      "version: 1\ndataset: {format: image_folder, root: r}\ngraph:\n  - decode: {in: data, out: "
      "image}\n  - resize: {size: [8, 8]}\noutputs: [image, label, sample_id]\n";
  setup.file_name = "some.yaml";
  setup.classes = 3;
  setup.fields = {{"data", {DType::kUInt8, Layout::kEncoded, {-1}}, ""},
                  {"label", {DType::kInt64, Layout::kPlain, {}}, ""}};
  return setup;
}

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(DecoderSetup, ComesOutAsItWentIn) {
  const DecoderSetup in = Some();
  const auto out = DecodeSetup(Bytes(EncodeSetup(in)));
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->text, in.text);
  EXPECT_EQ(out->file_name, in.file_name);
  EXPECT_EQ(out->classes, in.classes);
  ASSERT_EQ(out->fields.size(), in.fields.size());
  for (size_t i = 0; i < in.fields.size(); ++i) {
    EXPECT_EQ(out->fields[i].name, in.fields[i].name);
    EXPECT_EQ(out->fields[i].spec, in.fields[i].spec);
  }
}

TEST(DecoderSetup, MakesTheDaemonsOwnPlan) {
  const DecoderSetup setup = Some();
  const auto spec = ParsePipeline(setup.text, setup.file_name);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->text, setup.text);
  const auto daemons = Plan::Create(*spec, setup.fields, setup.classes);
  const auto decoders = PlanOf(*DecodeSetup(Bytes(EncodeSetup(setup))));
  ASSERT_TRUE(daemons.ok() && decoders.ok());
  EXPECT_EQ(PlanIdentity(**daemons), PlanIdentity(**decoders));

  DecoderSetup other = setup;
  other.text.replace(other.text.find("[8, 8]"), 6, "[8, 9]");
  EXPECT_NE(PlanIdentity(**PlanOf(other)), PlanIdentity(**decoders));
}

// It can open nothing, so that what ops are made from comes along.
TEST(DecoderSetup, HasTheFilesOfOps) {
  DecoderSetup setup;
  setup.text =
      "version: 1\ndataset: {format: csv, root: r}\ngraph:\n  - tokenize: {tokenizer: words.txt, "
      "kind: words, max_length: 4, pad_token: b}\noutputs: [tokens]\n";
  setup.file_name = "text.yaml";
  setup.fields = {{"text", {DType::kUInt8, Layout::kPlain, {-1}}, ""}};
  const auto plan_with = [&](const std::string& words) {
    setup.files = {
        {"r", "words.txt", std::make_shared<const FileContent>(words, 1, MemoryReservation())}};
    return PlanOf(*DecodeSetup(Bytes(EncodeSetup(setup))));
  };
  const auto plan = plan_with("a\nb\n"), same = plan_with("a\nb\n"), other = plan_with("b\na\n");
  ASSERT_TRUE(plan.ok() && same.ok() && other.ok()) << plan.status();
  EXPECT_EQ(PlanIdentity(**plan), PlanIdentity(**same));
  EXPECT_NE(PlanIdentity(**plan), PlanIdentity(**other));
  setup.files.clear();
  EXPECT_FALSE(PlanOf(setup).ok());
}

TEST(DecoderSetup, CutAnywhereOrWithMoreBehindItIsRefused) {
  const std::string whole = EncodeSetup(Some());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_FALSE(DecodeSetup(Bytes(whole.substr(0, bytes))).ok()) << bytes;
  EXPECT_FALSE(DecodeSetup(Bytes(whole + "x")).ok());
}

}  // namespace
}  // namespace feedwater::server
