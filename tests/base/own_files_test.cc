#include "server/base/own_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <sstream>

#include "server/base/fd.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(OwnFiles, GiveTheirDiskBackAlsoWhereTheyAreOpen) {
  TempFolder temp;
  temp.Write("a", std::string(10'000, 'a'));
  const Fd open_still(open((temp / "a").c_str(), O_RDONLY));
  EXPECT_TRUE(RemoveOwnFile(temp / "a").ok());
  EXPECT_FALSE(fs::exists(temp / "a"));
  struct stat info;
  ASSERT_EQ(fstat(open_still.get(), &info), 0);
  EXPECT_EQ(info.st_size, 0);
  EXPECT_TRUE(absl::IsNotFound(RemoveOwnFile(temp / "a")));
}

TEST(OwnFiles, WhatHasAnotherNameKeepsItsBytes) {
  TempFolder temp;
  temp.Write("a", "bytes");
  fs::create_hard_link(temp / "a", temp / "b");
  EXPECT_TRUE(RemoveOwnFile(temp / "a").ok());
  EXPECT_FALSE(fs::exists(temp / "a"));
  EXPECT_EQ(fs::file_size(temp / "b"), 5u);
}

TEST(OwnFiles, LinksAndWhatTheyLeadToStay) {
  TempFolder temp;
  temp.Write("a", "bytes");
  fs::create_symlink("a", temp / "link");
  fs::create_directory(temp / "folder");
  ASSERT_EQ(mkfifo((temp / "fifo").c_str(), 0600), 0);
  for (const char* name : {"link", "folder", "fifo"}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(RemoveOwnFile(temp / name))) << name;
    EXPECT_FALSE(IsRegularFile(temp / name)) << name;
    EXPECT_EQ(BeginningOf(temp / name, 2), "") << name;
    EXPECT_TRUE(fs::exists(fs::symlink_status(temp / name))) << name;
  }
  EXPECT_TRUE(IsRegularFile(temp / "a"));
  EXPECT_EQ(BeginningOf(temp / "a", 2), "by");
  EXPECT_EQ(BeginningOf(temp / "a", 6), "");
  EXPECT_EQ(fs::file_size(temp / "a"), 5u);
}

TEST(ForeignEntries, AreToldOfOnce) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  for (int i = 0; i < 3; ++i) {
    ForeignEntries foreign("/state/cache");
    foreign.Report();  // nothing is
    for (const char* name : {"pip", "hugging\nface", "torch"}) foreign.Add(name);
    foreign.Report();
  }
  spdlog::set_default_logger(before);
  EXPECT_THAT(log.str(),
              AllOf(HasSubstr("/state/cache: 3 entries"), HasSubstr("hugging\\x0aface")));
  EXPECT_EQ(log.str().find("entries"), log.str().rfind("entries"));
}

}  // namespace
}  // namespace feedwater::server
