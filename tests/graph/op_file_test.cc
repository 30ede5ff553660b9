// Files that ops are made from: which may be read, and that what they hold is part of the pipeline.
#include "server/graph/op_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "server/graph/plan.h"
#include "server/storage/engine.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class OpFileTest : public ::testing::Test {
 protected:
  OpFileTest() {
    folder_ = fs::path(::testing::TempDir()) / absl::StrCat("op_file_", getpid());
    fs::create_directories(folder_ / "models/deep");
    fs::create_directories(folder_ / "data");
    roots_ = *Roots::Create(
        {{"models", (folder_ / "models").string()}, {"data", (folder_ / "data").string()}});
  }
  ~OpFileTest() override { fs::remove_all(folder_); }

  void Write(const std::string& path, const std::string& text) const {
    std::ofstream(folder_ / path, std::ios::binary) << text;
  }
  absl::StatusOr<PipelineSpec> Parse(const std::string& file,
                                     const std::string& dataset = "{format: csv, root: data}") {
    RootFiles files(*roots_, budget_);
    return ParsePipeline(
        absl::StrCat("version: 1\ndataset: ", dataset, "\ngraph:\n  - tokenize: {tokenizer: ", file,
                     ", kind: words, max_length: 4}\noutputs: [tokens]\n"),
        "p.yaml", {}, &files);
  }

  fs::path folder_;
  std::shared_ptr<const Roots> roots_;
  std::shared_ptr<MemoryBudget> budget_ = MemoryBudget::Create(64 << 20);
};

TEST_F(OpFileTest, WhatAFileHoldsIsPartOfTheDigestAndWhereItLiesIsNot) {
  Write("data/words.txt", "a\nb\n");
  Write("models/deep/same.txt", "a\nb\n");
  const auto first = Parse("words.txt"), elsewhere = Parse("{root: models, path: deep/same.txt}");
  ASSERT_TRUE(first.ok() && elsewhere.ok()) << first.status() << elsewhere.status();
  EXPECT_EQ(first->digest, elsewhere->digest);
  EXPECT_TRUE(AreCurrent(first->files(), *roots_));
  Write("data/words.txt", "a\nc\n");
  EXPECT_FALSE(AreCurrent(first->files(), *roots_));
  const auto second = Parse("words.txt");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(first->digest, second->digest);
  fs::remove(folder_ / "data/words.txt");
  EXPECT_FALSE(AreCurrent(second->files(), *roots_));
}

// XXH3's are not: two files can be made that have one.
TEST_F(OpFileTest, TheDigestIsOneThatNobodyCanMakeASecondFileFor) {
  const FileContent content("abc", 0, MemoryReservation());
  EXPECT_EQ(content.digest(), "ba7816bf8f01cfea414140de5dae2223");  // of SHA-256
}

// Memory is reserved for one tokenizer of each file.
TEST_F(OpFileTest, OfOneFileOneThingIsMadeHoweverManyOpsReadIt) {
  Write("data/words.txt", "[UNK]\n[CLS]\n[SEP]\na\nb\n");
  const auto parse = [&](const std::string& first, const std::string& second) {
    RootFiles files(*roots_, budget_);
    const auto op = [](const std::string& file, const std::string& more, const char* out) {
      return absl::StrCat("  - tokenize: {tokenizer: ", file, ", ", more, ", max_length: 4, out: [",
                          out, ", ", out, "_mask]}\n");
    };
    return ParsePipeline(absl::StrCat("version: 1\ndataset: {format: csv, root: data}\ngraph:\n",
                                      op("words.txt", first, "t"), op("words.txt", second, "u"),
                                      "outputs: [t, u]\n"),
                         "p.yaml", {}, &files);
  };
  EXPECT_TRUE(parse("kind: words, unknown_token: a", "kind: words, unknown_token: b").ok());
  EXPECT_TRUE(parse("kind: words", "kind: words, unknown_token: b").ok());
  const char *const cased = "kind: wordpiece, lowercase: false",
                    *const uncased = "kind: wordpiece, lowercase: true";
  EXPECT_TRUE(parse(cased, cased).ok());
  for (const char* other : {"kind: words", uncased}) {
    const auto spec = parse(cased, other);
    ASSERT_TRUE(absl::IsInvalidArgument(spec.status())) << spec.status();
    EXPECT_THAT(std::string(spec.status().message()),
                ::testing::AllOf(HasSubstr("p.yaml:5:"), HasSubstr("'words.txt' of root 'data'"),
                                 HasSubstr(absl::StrCat("reads it with ", cased)),
                                 HasSubstr(absl::StrCat("this one with ", other))));
  }
}

TEST_F(OpFileTest, OnlyRegularFilesBelowADeclaredRootAreRead) {
  Write("secret", "a\nb\n");
  Write("models/words.txt", "a\nb\n");
  fs::create_symlink(folder_ / "secret", folder_ / "data/out");
  fs::create_directory(folder_ / "data/folder");
  mkfifo((folder_ / "data/fifo").c_str(), 0600);
  const std::pair<const char*, const char*> cases[] = {
      {"../secret", "../secret"},
      {"out", "'out' of root 'data'"},
      {"missing", "'missing' of root 'data'"},
      {"folder", "a folder, not a file"},
      {"fifo", "not a regular file"},
      {"{root: model, path: words.txt}", "did you mean 'models'"},
  };
  for (const auto& [file, message] : cases) {
    const auto spec = Parse(file);
    EXPECT_FALSE(spec.ok()) << file;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr(message)) << file;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr("p.yaml:4:")) << file;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr("'tokenizer'")) << file;
  }
  // An absolute path is one below its folder, which has to be a root.
  EXPECT_FALSE(Parse((folder_ / "secret").string()).ok());
  roots_ = *Roots::Create({{"/", "/"}, {"data", (folder_ / "data").string()}});
  EXPECT_TRUE(Parse((folder_ / "secret").string()).ok());
}

TEST_F(OpFileTest, ADatasetWithoutARootNeedsOneToBeNamed) {
  Write("models/words.txt", "a\nb\n");
  const std::string mix =
      "{mix: [{format: csv, root: data, weight: 1}, {format: csv, root: models, weight: 1}]}";
  const auto spec = Parse("words.txt", mix);
  ASSERT_FALSE(spec.ok());
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr("{root: ROOT, path: words.txt}"));
}

// As a file that is replaced between the first op and the second.
TEST_F(OpFileTest, OpsOfOneFileGetTheSameBytesWhichAreReadAndHandedOnOnce) {
  class Changing : public OpFileReader {
   public:
    absl::StatusOr<std::shared_ptr<const FileContent>> Read(const std::string&,
                                                            const std::string&) override {
      ++reads;
      return std::make_shared<const FileContent>(absl::StrCat("a\nb", reads, "\n"), 1,
                                                 MemoryReservation());
    }
    int reads = 0;
  } files;
  const auto spec = ParsePipeline(
      "version: 1\ndataset: {format: csv, root: data}\ngraph:\n"
      "  - tokenize: {tokenizer: w.txt, kind: words, max_length: 4}\n"
      "  - tokenize: {tokenizer: {root: data, path: w.txt}, kind: words, max_length: 9, out: [t, "
      "m]}\n"
      "  - tokenize: {tokenizer: other.txt, kind: words, max_length: 4, out: [u, n]}\n"
      "outputs: [tokens, t, u]\n",
      "p.yaml", {}, &files);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(files.reads, 2);
  ASSERT_EQ(spec->files().size(), 2u);
  EXPECT_EQ(spec->graph[0].files.at("tokenizer").content,
            spec->graph[1].files.at("tokenizer").content);
  EXPECT_NE(spec->graph[0].files.at("tokenizer").content,
            spec->graph[2].files.at("tokenizer").content);
}

// Two writes within a tick of the file system's clock can leave equal times.
TEST_F(OpFileTest, AFileIsReadWhenALaterChangeWouldShow) {
  for (int i = 0; i < 5; ++i) {
    Write("data/words.txt", "a\nb\n");
    const auto spec = Parse("words.txt");
    ASSERT_TRUE(spec.ok()) << spec.status();
    struct stat info {};
    ASSERT_EQ(stat((folder_ / "data/words.txt").c_str(), &info), 0);
    EXPECT_TRUE(WouldShowChanges(info, /*is_local=*/false));
    Write("data/words.txt", "a\nc\n");  // at once, of the same size
    EXPECT_FALSE(AreCurrent(spec->files(), *roots_));
  }
}

// A start, a reload and a list wait for no file, and there need be none yet.
TEST_F(OpFileTest, WithDeclaredFilesAPipelineIsCheckedAndNothingIsRead) {
  DeclaredFiles files(*roots_);
  const auto parse = [&](const std::string& file) {
    return ParsePipeline(
        absl::StrCat("version: 1\ndataset: {format: csv, root: data}\ngraph:\n  - tokenize: "
                     "{tokenizer: ",
                     file, ", kind: words, max_length: 4}\noutputs: [{tokens: {max_rows: 4}}]\n"),
        "p.yaml", {}, &files);
  };
  const auto spec = parse("missing.txt");
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->files().size(), 1u);
  EXPECT_EQ(spec->files()[0].root, "data");
  EXPECT_EQ(spec->files()[0].content, nullptr);
  EXPECT_EQ(spec->digest, "");
  EXPECT_FALSE(AreCurrent(spec->files(), *roots_));
  EXPECT_TRUE(Plan::Validate(*spec).ok());
  const auto wrong = parse("{root: model, path: missing.txt}");
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("did you mean 'models'"));
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("p.yaml:4:"));
}

TEST_F(OpFileTest, SizeAndMemoryAreBoundedBeforeTheFileIsRead) {
  Write("data/words.txt", "a\n");
  fs::resize_file(folder_ / "data/words.txt", kMostOpFileBytes + 1);
  EXPECT_THAT(std::string(Parse("words.txt").status().message()),
              HasSubstr("that an op's file may have"));
  fs::resize_file(folder_ / "data/words.txt", 32 << 20);
  EXPECT_TRUE(absl::IsResourceExhausted(Parse("words.txt").status()));
  Write("data/words.txt", "a\nb\n");
  const int64_t before = budget_->free_bytes();
  {
    const auto spec = Parse("words.txt");
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(before - budget_->free_bytes(), OpFileMemory(4));
  }
  EXPECT_EQ(budget_->free_bytes(), before);
}

TEST_F(OpFileTest, ThePrefixOfAnotherFileIsAnotherOne) {
  const auto digest = [&](const std::string& words) {
    Write("data/words.txt", words);
    const auto spec = Parse("words.txt");
    EXPECT_TRUE(spec.ok()) << spec.status();
    const auto plan =
        Plan::Create(*spec, {{"text", {DType::kUInt8, Layout::kPlain, {-1}}, "A text."}}, 0);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return (*plan)->prefix().digest;
  };
  EXPECT_EQ(digest("a\nb\n"), digest("a\nb\n"));
  EXPECT_NE(digest("a\nb\n"), digest("b\na\n"));
}

}  // namespace
}  // namespace feedwater::server
