// Goal: the daemon takes feedwater-columnar, which reads foreign bytes, for hostile: whatever it
// writes and however it ends, it is an error of the file and nothing else; and an error of storage
// is none of the file. Method: programs that write what they should not, and the real one with
// files that cannot be read.
#include "server/source/columnar_program.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/base/fd.h"
#include "server/source/columnar_rows.h"
#include "server/storage/fault.h"
#include "tests/source/dataset_reader.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

constexpr char kHostile[] = "hostile-columnar";

// Under that name this program runs the lines of a shell that it is asked for as a column, before
// main().
[[maybe_unused]] const bool kIsNoHostileProgram = [] {
  if (strcmp(program_invocation_short_name, kHostile) != 0) return true;
  uint32_t bytes = 0;
  if (read(3, &bytes, sizeof(bytes)) != sizeof(bytes) || bytes > kMaxRequestBytes) _exit(9);
  std::string text(bytes, '\0');
  ColumnarRequest request;
  if (read(3, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      !DecodeRequest(text, &request) || request.wanted.size() != 1) {
    _exit(9);
  }
  execl("/bin/sh", "sh", "-c", request.wanted[0].c_str(), nullptr);
  _exit(9);
}();

class HostileProgramTest : public ::testing::Test {
 protected:
  // What a program that runs these lines of a shell, with its socket as descriptor 3, comes to.
  absl::Status Unpack(
      const std::string& lines, int* appended = nullptr,
      const std::function<absl::Status()>& goes_on = [] { return absl::OkStatus(); }) {
    const std::string path = folder_ / kHostile;
    std::error_code ignored;
    std::filesystem::create_symlink(std::filesystem::read_symlink("/proc/self/exe"), path, ignored);
    auto opened = ChildProgram::Open(path);
    EXPECT_TRUE(opened.ok()) << opened.status();
    ColumnarProgram program(*opened);
    program.SetPatience({0.5, 0.5});
    const Fd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
    ColumnarRequest request;
    request.wanted = {lines};
    int64_t bytes = 0;
    const absl::Status status = program.Unpack(
        request, file.get(), "'x.parquet'",
        [&](absl::string_view part) {
          bytes += static_cast<int64_t>(part.size());
          return absl::OkStatus();
        },
        goes_on);
    if (appended != nullptr) *appended = static_cast<int>(bytes);
    return status;
  }
  std::string Write(const std::string& bytes) {
    folder_.Write("bytes", bytes);
    return absl::StrCat("cat ", folder_ / "bytes", " >&3");
  }
  static std::string Header(const std::string& columns) {
    return LittleEndianText(kHeaderMark) + LittleEndianText(static_cast<uint32_t>(columns.size())) +
           columns;
  }
  static std::string LittleEndianText(uint32_t number) {
    return {reinterpret_cast<const char*>(&number), sizeof(number)};
  }
  static std::string End(uint64_t rows) {
    return LittleEndianText(kEndMark) +
           std::string(reinterpret_cast<const char*>(&rows), sizeof(rows));
  }
  static std::string Row(const std::string& bytes) {
    return LittleEndianText(static_cast<uint32_t>(bytes.size())) + bytes;
  }

  TempFolder folder_;
};

TEST_F(HostileProgramTest, ColumnsAndRowsArePassedOnAndNothingElse) {
  const std::string staged = Header(EncodeColumns({})) + Row("") + Row("abc");
  int appended = 0;
  const absl::Status status = Unpack(Write(staged + End(2)), &appended);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(appended, static_cast<int>(staged.size()));
}

TEST_F(HostileProgramTest, WhatMakesNoSenseIsAnErrorOfTheFile) {
  const std::string header = Header(EncodeColumns({}));
  for (const std::string& bytes :
       {std::string("rubbish that is longer than a mark"), std::string(), std::string("ab"),
        Row("abc"), End(0), header, header + header, header + Row("abc"),
        header + Row("abc") + End(2), header + End(0) + "x", Header("rubbish"),
        LittleEndianText(kHeaderMark) + LittleEndianText(0xffffffff),
        LittleEndianText(kHeaderMark) + LittleEndianText(0),
        header + LittleEndianText(kMaxRowBytes + 1),
        LittleEndianText(kErrorMark) + LittleEndianText(9) + LittleEndianText(0),
        LittleEndianText(kErrorMark) + LittleEndianText(1) + LittleEndianText(1 << 20)}) {
    const absl::Status status = Unpack(Write(bytes));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'x.parquet' cannot be read as Arrow"));
  }
}

TEST_F(HostileProgramTest, AnErrorOfStorageIsNoErrorOfTheFile) {
  const auto told = [&](uint32_t error) {
    return Unpack(Write(LittleEndianText(kErrorMark) +
                        LittleEndianText(static_cast<uint32_t>(ColumnarError::kStorage)) +
                        LittleEndianText(4) + LittleEndianText(error)));
  };
  EXPECT_TRUE(IsTransient(told(ESTALE))) << told(ESTALE);
  EXPECT_EQ(told(EIO), StorageError(EIO, "read 'x.parquet'"));
  for (const uint32_t error : {0U, 1U << 20, 0xffffffffU})
    EXPECT_TRUE(absl::IsInvalidArgument(told(error))) << told(error);
  EXPECT_TRUE(absl::IsInvalidArgument(
      Unpack(Write(LittleEndianText(kErrorMark) + LittleEndianText(4) + LittleEndianText(0)))));
}

TEST_F(HostileProgramTest, EveryPartOfAStreamMayComeAlone) {
  const std::string whole = Header(EncodeColumns({})) + Row("abc") + Row(std::string(300, 'x'));
  std::string lines;
  folder_.Write("bytes", whole + End(2));
  lines =
      absl::StrCat("i=0; while [ $i -lt ", whole.size() + 12, " ]; do dd if=", folder_ / "bytes",
                   " bs=1 skip=$i count=7 2>/dev/null >&3; i=$((i + 7)); done");
  int appended = 0;
  const absl::Status status = Unpack(lines, &appended);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(appended, static_cast<int>(whole.size()));
}

TEST_F(HostileProgramTest, AnEndWithoutTheLastRowIsSaidAsItWas) {
  EXPECT_THAT(std::string(Unpack("exit 0").message()), HasSubstr("ended before its last row"));
  EXPECT_THAT(std::string(Unpack("exit 3").message()), HasSubstr("ended with status 3"));
  EXPECT_TRUE(absl::IsResourceExhausted(Unpack("kill -KILL $$")));
  EXPECT_TRUE(absl::IsFailedPrecondition(Unpack("exit 127")));
}

TEST_F(HostileProgramTest, OneThatStandsStillOrWorksForEverIsEnded) {
  EXPECT_TRUE(absl::IsUnavailable(Unpack("exec sleep 1000")));
  const absl::Status status = Unpack("while :; do :; done");
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("of CPU time"));
  int asked = 0;
  EXPECT_TRUE(absl::IsCancelled(Unpack("exec sleep 1000", nullptr, [&] {
    return ++asked > 2 ? absl::CancelledError("nobody waits") : absl::OkStatus();
  })));
}

TEST_F(HostileProgramTest, ColumnsThatCannotBeAreRefused) {
  std::vector<ColumnarColumn> columns(1);
  columns[0].spec = ColumnSpec::Number("x", DType::kInt64, {-1, 3});
  columns[0].is_staged = true;
  std::vector<ColumnarColumn> read;
  const std::string good = EncodeColumns(columns);
  ASSERT_TRUE(DecodeColumns(good, &read));
  EXPECT_EQ(read[0].spec, columns[0].spec);
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(DecodeColumns(good.substr(0, length), &read));
  EXPECT_FALSE(DecodeColumns(good + "x", &read));
  for (const Shape& shape :
       {Shape{3, -1}, Shape{-2}, Shape{1 << 20, 1 << 20}, Shape{INT64_MAX, 9}}) {
    columns[0].spec.shape = shape;
    EXPECT_FALSE(DecodeColumns(EncodeColumns(columns), &read));
  }
  columns[0].spec = ColumnSpec::Text("x");
  columns[0].spec.dtype = DType::kInt64;
  EXPECT_FALSE(DecodeColumns(EncodeColumns(columns), &read));
  for (uint64_t seed = 0; seed < 300; ++seed) DecodeColumns(RandomBytes(200, seed), &read);
}

// The real program, with a file of its own.
class UnreadableFileTest : public ::testing::TestWithParam<const char*> {
 protected:
  static absl::Status Unpack(int file, uint64_t bytes) {
    const auto program = ColumnarProgram::Find(GetParam());
    if (!program.ok()) return program.status();
    ColumnarRequest request;
    request.is_parquet = std::string(GetParam()) == "parquet";
    request.wants_all = true;
    request.file_bytes = bytes;
    request.memory_bytes = static_cast<uint64_t>(ColumnarMemory(static_cast<int64_t>(bytes)));
    return program->Unpack(
        request, file, "'x'", [](absl::string_view) { return absl::OkStatus(); },
        [] { return absl::OkStatus(); });
  }
  void SetUp() override {
    const auto program = ColumnarProgram::Find(GetParam());
    if (!program.ok()) GTEST_SKIP() << program.status().message();
  }
};
INSTANTIATE_TEST_SUITE_P(Formats, UnreadableFileTest, ::testing::Values("parquet", "arrow"),
                         [](const auto& info) { return info.param; });

TEST_P(UnreadableFileTest, AReadThatFailsIsAnErrorOfStorage) {
  // Nothing is ever mapped at the first addresses, so that every read there fails with EIO.
  const Fd memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  char byte = 0;
  ASSERT_TRUE(pread(memory.get(), &byte, 1, 0) < 0 && errno == EIO) << std::strerror(errno);
  EXPECT_EQ(Unpack(memory.get(), 4096), StorageError(EIO, "read 'x'"));
}

TEST_P(UnreadableFileTest, AFileThatIsCutOffWhileItIsReadIsRefused) {
  TempFolder folder;
  const std::string whole =
      std::string(FEEDWATER_SOURCE_DIR "/tests/source/columnar/a.") + GetParam();
  const uint64_t bytes = std::filesystem::file_size(whole);
  std::filesystem::copy_file(whole, folder / "x");
  const Fd file(open((folder / "x").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(Unpack(file.get(), bytes).ok()) << Unpack(file.get(), bytes);
  std::filesystem::resize_file(folder / "x", bytes / 2);
  const absl::Status status = Unpack(file.get(), bytes);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("became shorter while it was read"));
}

}  // namespace
}  // namespace feedwater::server
