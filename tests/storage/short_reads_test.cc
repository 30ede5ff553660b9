// Goal: the bookkeeping that all engines share copes with whatever read(2) may answer: parts of any
// size, interruptions, an error in the middle. Method: an engine that hands the file out in random
// parts, over files marked as direct or not.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <deque>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "server/storage/engine.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

class PartsEngine final : public ReadEngine {
 public:
  // `next` gives what the read of `length` bytes answers: a number of bytes up to length, or
  // -errno.
  explicit PartsEngine(std::function<int64_t(int64_t length)> next) : next_(std::move(next)) {}

  absl::string_view name() const override { return "parts"; }
  void Submit(ReadOp* op) override {
    bool complete = !Begin(op);
    while (!complete) {
      Piece piece = Remaining(*op);
      ++reads;
      if (op->file->direct_io) {
        EXPECT_EQ(piece.offset % 4096, 0);
        EXPECT_EQ(piece.length % 4096, 0);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(piece.into) % 4096, 0u);
      }
      EXPECT_GT(piece.length, 0);
      EXPECT_LE(piece.into + piece.length, op->buffer.data() + op->buffer.size());
      int64_t result = next_(piece.length);
      if (result > 0) {
        result = pread(op->file->fd.get(), piece.into, static_cast<size_t>(result), piece.offset);
      }
      complete = Advance(op, result);
    }
    ready_.push_back(op);
  }
  ReadOp* Collect(bool) override {
    if (ready_.empty()) return nullptr;
    ReadOp* op = ready_.front();
    ready_.pop_front();
    return op;
  }
  size_t in_flight() const override { return ready_.size(); }

  int reads = 0;

 private:
  std::function<int64_t(int64_t)> next_;
  std::deque<ReadOp*> ready_;
};

class ShortReads : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int64_t kSize = 200'001;
  ShortReads()
      : content_(RandomBytes(kSize, 3)),
        memory_(static_cast<std::byte*>(std::aligned_alloc(4096, 1 << 18)), std::free) {
    folder_.Write("f", content_);
    auto file = std::make_shared<OpenedFile>();
    file->fd = Fd(open((folder_ / "f").c_str(), O_RDONLY));
    file->direct_io = GetParam();
    file->path = "f";
    op_.file = file;
  }
  void Read(PartsEngine* engine, int64_t offset, int64_t length) {
    op_.offset = offset;
    op_.length = length;
    op_.buffer = absl::MakeSpan(memory_.get(), ReadBufferBytes(length, op_.file->direct_io));
    std::memset(memory_.get(), 0xA5, 1 << 18);
    engine->Submit(&op_);
    EXPECT_EQ(engine->Collect(true), &op_);
  }
  std::string Bytes() const {
    return std::string(reinterpret_cast<const char*>(op_.data), static_cast<size_t>(op_.length));
  }

  TempFolder folder_;
  std::string content_;
  std::unique_ptr<std::byte, void (*)(void*)> memory_;
  ReadOp op_;
};

TEST_P(ShortReads, PartsOfAnySizeMakeTheWhole) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(absl::StrCat("seed ", kSeed));
  std::mt19937_64 random(kSeed);
  // A direct read gives at least a block, unless the file ends.
  const int64_t least = GetParam() ? 4096 : 1;
  PartsEngine engine([&](int64_t length) {
    if (random() % 4 == 0) return random() % 2 == 0 ? int64_t{-EINTR} : int64_t{-EAGAIN};
    return std::min(length, least + static_cast<int64_t>(random() % 20'000));
  });
  for (int i = 0; i < 300; ++i) {
    const auto offset = static_cast<int64_t>(random() % kSize);
    const int64_t length =
        1 + static_cast<int64_t>(random() % static_cast<uint64_t>(kSize - offset));
    Read(&engine, offset, length);
    ASSERT_TRUE(op_.status.ok()) << op_.status;
    ASSERT_EQ(Bytes(), content_.substr(static_cast<size_t>(offset), static_cast<size_t>(length)));
    for (size_t k = 0; k < kReadPadding; ++k)
      ASSERT_EQ(op_.data[static_cast<size_t>(length) + k], std::byte{0});
    Read(&engine, offset, kSize - offset + 7);
    ASSERT_EQ(op_.status.code(), absl::StatusCode::kFailedPrecondition) << op_.status;
    ASSERT_THAT(std::string(op_.status.message()), HasSubstr("ends at byte 200001, 7 bytes short"));
  }
  EXPECT_GT(engine.reads, 1000);
}

TEST_P(ShortReads, EndlessInterruptionsAreAnErrorInTheEnd) {
  for (int error : {EINTR, EAGAIN}) {
    PartsEngine engine([&](int64_t) { return int64_t{-error}; });
    Read(&engine, 10, 1000);
    EXPECT_FALSE(op_.status.ok());
    EXPECT_THAT(std::string(op_.status.message()), HasSubstr(absl::StrCat("errno ", error)));
    EXPECT_LT(engine.reads, 1000);
  }
}

TEST_P(ShortReads, AnErrorInTheMiddleIsTheReadsErrorAndTheNextReadIsFresh) {
  int left = 2;
  PartsEngine engine(
      [&](int64_t length) { return left-- > 0 ? std::min<int64_t>(length, 8192) : int64_t{-EIO}; });
  Read(&engine, 0, 100'000);
  EXPECT_THAT(std::string(op_.status.message()), HasSubstr(absl::StrCat("errno ", EIO)));
  left = 1000;
  Read(&engine, 0, 100'000);
  ASSERT_TRUE(op_.status.ok()) << op_.status;
  EXPECT_EQ(Bytes(), content_.substr(0, 100'000));
}

INSTANTIATE_TEST_SUITE_P(Storage, ShortReads, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "direct" : "buffered"; });

}  // namespace
}  // namespace feedwater::server
