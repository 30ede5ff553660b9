// One suite over every registered engine: they may differ in speed, never in bytes or in what they
// report.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <set>

#include "gmock/gmock.h"
#include "server/storage/engine.h"
#include "tests/storage/system_calls.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20240817;

// A read with its own buffer, filled with a pattern that a missing byte would leave.
struct TestRead {
  TestRead(std::shared_ptr<const OpenedFile> file, int64_t offset, int64_t length) {
    size_t bytes = ReadBufferBytes(length, file->direct_io);
    size_t room = (bytes + kReadAlignment - 1) / kReadAlignment * kReadAlignment;
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(kReadAlignment, room)));
    std::memset(memory.get(), 0xA5, room);
    op.file = std::move(file);
    op.offset = offset;
    op.length = length;
    op.buffer = absl::MakeSpan(memory.get(), bytes);
    op.user = this;
  }
  std::string Bytes() const {
    return std::string(reinterpret_cast<const char*>(op.data), static_cast<size_t>(op.length));
  }
  bool PaddingIsZero() const {
    for (size_t i = 0; i < kReadPadding; ++i) {
      if (op.data[static_cast<size_t>(op.length) + i] != std::byte{0}) return false;
    }
    return true;
  }

  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory;
  ReadOp op;
};

class EngineConformance : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  void SetUp() override {
    const EngineEntry* entry = Registry<EngineEntry>::Get().Find(EngineName());
    ASSERT_NE(entry, nullptr);
    if (auto probed = entry->probe(); !probed.ok()) GTEST_SKIP() << probed.status();
    root_ = *folder_.AsRoot()->Find("root");
    cache_ = std::make_unique<FileCache>(64, DirectIo());
  }
  std::string EngineName() const { return std::get<0>(GetParam()); }
  bool DirectIo() const { return std::get<1>(GetParam()); }
  std::unique_ptr<ReadEngine> Create(size_t depth) {
    auto engine = CreateEngine(EngineName(), {.depth = depth});
    EXPECT_TRUE(engine.ok()) << engine.status();
    return engine.ok() ? *std::move(engine) : nullptr;
  }
  std::shared_ptr<const OpenedFile> Open(const std::string& name) {
    auto file = cache_->Open(*root_, name);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *file : nullptr;
  }
  // One read alone.
  void Read(TestRead* read) {
    auto engine = Create(1);
    engine->Submit(&read->op);
    EXPECT_EQ(engine->in_flight(), 1u);
    EXPECT_EQ(engine->Collect(true), &read->op);
    EXPECT_EQ(engine->in_flight(), 0u);
    EXPECT_EQ(engine->Collect(true), nullptr);
    EXPECT_EQ(engine->Collect(false), nullptr);
  }

  TempFolder folder_;
  std::shared_ptr<const Root> root_;
  std::unique_ptr<FileCache> cache_;
};

TEST_P(EngineConformance, RandomReadsGiveTheBytesOfTheFileWithManyInFlight) {
  SCOPED_TRACE(absl::StrCat("seed ", kSeed));
  std::mt19937_64 random(kSeed);
  std::vector<std::string> contents;
  for (int64_t size : {1, 511, 4096, 4097, 100'000, 1'234'567}) {
    contents.push_back(RandomBytes(static_cast<size_t>(size), random()));
    folder_.Write(std::to_string(contents.size() - 1), contents.back());
  }
  constexpr size_t kDepth = 16;
  constexpr int kReads = 800;
  std::set<TestRead*> flying;
  int submitted = 0, collected = 0;
  std::deque<TestRead> reads;
  std::map<TestRead*, size_t> content_of;
  auto engine = Create(kDepth);  // gone before the buffers are, also when an assertion fails
  while (collected < kReads) {
    while (submitted < kReads && engine->in_flight() < kDepth) {
      size_t file = random() % contents.size();
      int64_t size = static_cast<int64_t>(contents[file].size());
      int64_t offset = static_cast<int64_t>(random() % static_cast<uint64_t>(size + 1));
      int64_t length = static_cast<int64_t>(random() % static_cast<uint64_t>(size - offset + 1));
      if (random() % 8 == 0) length = size - offset;  // up to the tail
      TestRead& read = reads.emplace_back(Open(std::to_string(file)), offset, length);
      content_of[&read] = file;
      engine->Submit(&read.op);
      flying.insert(&read);
      ++submitted;
    }
    ReadOp* op = engine->Collect(random() % 2 == 0);
    if (op == nullptr) {
      ASSERT_GT(engine->in_flight(), 0u);
      continue;
    }
    auto* read = static_cast<TestRead*>(op->user);
    ASSERT_EQ(flying.erase(read), 1u) << "collected twice";
    ASSERT_TRUE(op->status.ok()) << op->status;
    ASSERT_EQ(read->Bytes(), contents[content_of[read]].substr(static_cast<size_t>(op->offset),
                                                               static_cast<size_t>(op->length)));
    ASSERT_TRUE(read->PaddingIsZero());
    read->memory.reset();
    ++collected;
  }
  EXPECT_EQ(engine->in_flight(), 0u);
  EXPECT_EQ(engine->Collect(true), nullptr);
}

TEST_P(EngineConformance, AReadOfNothingSucceedsAnywhere) {
  folder_.Write("f", "abc");
  folder_.Write("empty", "");
  for (int64_t offset : {0, 2, 3, 100}) {
    TestRead read(Open("f"), offset, 0);
    Read(&read);
    EXPECT_TRUE(read.op.status.ok()) << read.op.status;
    EXPECT_TRUE(read.PaddingIsZero());
  }
  TestRead read(Open("empty"), 0, 0);
  Read(&read);
  EXPECT_TRUE(read.op.status.ok()) << read.op.status;
}

TEST_P(EngineConformance, AFileThatEndsEarlySaysSoAndSaysByHowMuch) {
  folder_.Write("f", RandomBytes(10'000, kSeed));
  folder_.Write("empty", "");
  struct Case {
    int64_t offset, length, missing;
  };
  for (Case c :
       {Case{0, 10'001, 1}, Case{9'999, 2, 1}, Case{4'096, 10'000, 4'096}, Case{10'000, 5, 5},
        Case{20'000, 5, 10'005}, Case{8'192, 4'096, 2'288}, Case{10'240, 1, 241}}) {
    TestRead read(Open("f"), c.offset, c.length);
    Read(&read);
    EXPECT_EQ(read.op.status.code(), absl::StatusCode::kFailedPrecondition) << read.op.status;
    EXPECT_THAT(std::string(read.op.status.message()),
                HasSubstr(absl::StrCat(folder_ / "f", " ends at byte 10000, ", c.missing,
                                       " bytes short: truncated since it was indexed")));
  }
  TestRead read(Open("empty"), 0, 7);
  Read(&read);
  EXPECT_EQ(read.op.status.code(), absl::StatusCode::kFailedPrecondition) << read.op.status;
}

TEST_P(EngineConformance, AFileTruncatedAfterOpeningSaysSoAndItsNeighboursAreIntact) {
  const std::string content = RandomBytes(300'000, kSeed);
  folder_.Write("cut", content);
  folder_.Write("whole", content);
  auto cut = Open("cut");
  ASSERT_EQ(cut->size, 300'000);
  ASSERT_EQ(truncate((folder_ / "cut").c_str(), 123'456), 0);
  TestRead a(cut, 0, 300'000), b(Open("whole"), 0, 300'000), c(cut, 0, 123'456);
  auto engine = Create(4);
  for (TestRead* read : {&a, &b, &c}) engine->Submit(&read->op);
  for (int i = 0; i < 3; ++i) ASSERT_NE(engine->Collect(true), nullptr);
  EXPECT_EQ(a.op.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(a.op.status.message()),
              HasSubstr("ends at byte 123456, 176544 bytes short"));
  ASSERT_TRUE(b.op.status.ok()) << b.op.status;
  EXPECT_EQ(b.Bytes(), content);
  ASSERT_TRUE(c.op.status.ok()) << c.op.status;
  EXPECT_EQ(c.Bytes(), content.substr(0, 123'456));
}

TEST_P(EngineConformance, ShortReadsAreContinued) {
  // procfs hands out at most a page a read.
  auto proc = Roots::Create({{"proc", "/proc"}});
  ASSERT_TRUE(proc.ok());
  std::ifstream stream("/proc/kallsyms", std::ios::binary);
  std::string want(200'000, '\0');
  stream.read(want.data(), static_cast<std::streamsize>(want.size()));
  if (static_cast<size_t>(stream.gcount()) != want.size())
    GTEST_SKIP() << "/proc/kallsyms is not readable";
  auto file = cache_->Open(**(*proc)->Find("proc"), "kallsyms");
  ASSERT_TRUE(file.ok()) << file.status();
  TestRead read(*file, 0, static_cast<int64_t>(want.size()));
  Read(&read);
  ASSERT_TRUE(read.op.status.ok()) << read.op.status;
  EXPECT_EQ(read.Bytes(), want);
}

TEST_P(EngineConformance, AFailingReadNamesPathAndErrno) {
  auto file = std::make_shared<OpenedFile>();
  file->fd = Fd(open(folder_.path().c_str(), O_RDONLY | O_DIRECTORY));  // read(2) gives EISDIR
  file->path = "the/path";
  TestRead read(file, 0, 100);
  Read(&read);
  EXPECT_FALSE(read.op.status.ok());
  EXPECT_THAT(std::string(read.op.status.message()),
              ::testing::AllOf(HasSubstr("the/path"), HasSubstr(absl::StrCat("errno ", EISDIR))));
}

TEST_P(EngineConformance, ImpossibleReadsAreRefusedWithoutTouchingMemory) {
  folder_.Write("f", "abc");
  auto file = Open("f");
  for (auto [offset, length] : std::vector<std::pair<int64_t, int64_t>>{
           {-1, 1}, {0, -1}, {INT64_MAX, 1}, {1, INT64_MAX}, {INT64_MAX, INT64_MAX}}) {
    TestRead read(file, 0, 3);
    read.op.offset = offset;
    read.op.length = length;
    Read(&read);
    EXPECT_EQ(read.op.status.code(), absl::StatusCode::kInvalidArgument) << read.op.status;
    EXPECT_EQ(read.memory.get()[0], std::byte{0xA5});
  }
  TestRead small(file, 0, 3);
  small.op.buffer = small.op.buffer.subspan(0, 3);
  Read(&small);
  EXPECT_FALSE(small.op.status.ok());
  TestRead unaligned(file, 0, 3);
  unaligned.op.buffer = absl::MakeSpan(unaligned.memory.get() + 1, unaligned.op.buffer.size() - 1);
  unaligned.op.length = 1;
  Read(&unaligned);
  EXPECT_FALSE(unaligned.op.status.ok());
  TestRead none(file, 0, 3);
  none.op.file = nullptr;
  Read(&none);
  EXPECT_FALSE(none.op.status.ok());
}

TEST_P(EngineConformance, AnEngineDestroyedWithReadsInFlightLeavesTheBuffersAlone) {
  folder_.Write("f", RandomBytes(1 << 20, kSeed));
  TestRead a(Open("f"), 0, 1 << 20), b(Open("f"), 1000, 1 << 19);
  {
    auto engine = Create(4);
    engine->Submit(&a.op);
    engine->Submit(&b.op);
    engine->Collect(false);
  }
  std::memset(a.memory.get(), 0x11, 1 << 20);
  usleep(2000);
  for (int i = 0; i < 1 << 20; ++i) ASSERT_EQ(a.memory.get()[i], std::byte{0x11});
}

std::vector<std::string> EnginesThatRead() {
  std::vector<std::string> names;
  for (const std::string& name : Registry<EngineEntry>::Get().Names()) {
    // null gives zeroes by design, see below.
    if (Registry<EngineEntry>::Get().Find(name)->gives_bytes) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineConformance,
                         ::testing::Combine(::testing::ValuesIn(EnginesThatRead()),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "_direct" : "");
                         });

TEST(Engines, TheDirectRunsReallyUseDirectIo) {
  TempFolder folder;
  folder.Write("f", "abc");
  FileCache cache(4, true);
  auto file = cache.Open(**folder.AsRoot()->Find("root"), "f");
  ASSERT_TRUE(file.ok());
  if (!(*file)->direct_io) GTEST_SKIP() << "the temporary directory's file system has no O_DIRECT";
  EXPECT_NE(fcntl((*file)->fd.get(), F_GETFL) & O_DIRECT, 0);
}

TEST(Engines, NullGivesZeroesAtOnce) {
  TempFolder folder;
  folder.Write("f", "abc");
  FileCache cache(4, false);
  TestRead read(*cache.Open(**folder.AsRoot()->Find("root"), "f"), 0, 1000);
  auto engine = CreateEngine("null", {});
  ASSERT_TRUE(engine.ok());
  (*engine)->Submit(&read.op);
  EXPECT_EQ((*engine)->Collect(false), &read.op);
  EXPECT_TRUE(read.op.status.ok());
  EXPECT_EQ(read.Bytes(), std::string(1000, '\0'));
}

TEST(Engines, EveryEngineIsDocumentedAndListed) {
  EXPECT_THAT(Registry<EngineEntry>::Get().Names(),
              ::testing::IsSupersetOf({"io_uring", "null", "pread"}));
  for (const std::string& name : Registry<EngineEntry>::Get().Names()) {
    EXPECT_FALSE(Registry<EngineEntry>::Get().Find(name)->summary.empty()) << name;
  }
}

TEST(Engines, ARingTakesNoRegistrationsOnceItRuns) {
  auto engine = CreateEngine("io_uring", {.depth = 2});
  if (!engine.ok()) GTEST_SKIP() << engine.status();
  int ring = -1;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(entry, ignored) == "anon_inode:[io_uring]") {
      ring = std::stoi(entry.path().filename());
    }
  }
  ASSERT_GE(ring, 0);
  constexpr int kRegisterEventFd = 4;
  int event = 0;
  EXPECT_EQ(syscall(SYS_io_uring_register, ring, kRegisterEventFd, &event, 1), -1);
  EXPECT_EQ(errno, EACCES);
}

TEST(Engines, DepthsOutOfRangeAreRefused) {
  for (const std::string& name : Registry<EngineEntry>::Get().Names()) {
    EXPECT_EQ(CreateEngine(name, {.depth = 0}).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(CreateEngine(name, {.depth = kMaxEngineDepth + 1}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(ChooseEngine, AutoTakesOneThatWorksAndNeverNull) {
  auto choice = ChooseEngine("auto");
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_THAT(choice->name, ::testing::AnyOf("io_uring", "pread"));
  EXPECT_FALSE(choice->reason.empty());
  EXPECT_TRUE(choice->gives_bytes);
  EXPECT_EQ(ChooseEngine("pread")->name, "pread");
  EXPECT_TRUE(ChooseEngine("pread")->gives_bytes);
  EXPECT_EQ(ChooseEngine("null")->name, "null");
  EXPECT_FALSE(ChooseEngine("null")->gives_bytes);
}

TEST(ChooseEngine, AnUnknownNameGivesTheNearest) {
  auto choice = ChooseEngine("iouring");
  EXPECT_EQ(choice.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(choice.status().message()), HasSubstr("did you mean 'io_uring'?"));
}

bool FallsBackNaming(const std::vector<std::string>& words) {
  auto choice = ChooseEngine("auto");
  bool ok = choice.ok() && choice->name == "pread" && !ChooseEngine("io_uring").ok();
  for (const std::string& word : words) ok = ok && choice->reason.find(word) != std::string::npos;
  if (!ok)
    fprintf(stderr, "%s\n",
            choice.ok() ? choice->reason.c_str() : choice.status().ToString().c_str());
  return ok;
}

TEST(ChooseEngine, ARefusedRingFallsBackToPreadAndNamesReasonAndCure) {
  WithoutSystemCall(SYS_io_uring_setup, EPERM, [] {
    return FallsBackNaming({"EPERM", "seccomp", "io_uring_setup", "pread"});
  });
  WithoutSystemCall(SYS_io_uring_setup, ENOSYS, [] {
    return FallsBackNaming({"ENOSYS", "5.10", "pread"});
  });
  WithoutSystemCall(SYS_io_uring_setup, ENOMEM, [] {
    return FallsBackNaming({"ENOMEM", "LimitMEMLOCK", "pread"});
  });
}

TEST(ChooseEngine, ARingThatCannotBeEnteredOrRestrictedFallsBackToo) {
  WithoutSystemCall(SYS_io_uring_register, EPERM, [] {
    return FallsBackNaming({"EPERM", "pread"});
  });
  WithoutSystemCall(SYS_io_uring_enter, EPERM, [] { return FallsBackNaming({"pread"}); });
}

}  // namespace
}  // namespace feedwater::server
