// What the storage engines read, for comparison with fio and with memcpy.
//   read_bench FILE ENGINE BLOCK_BYTES DEPTH sequential|random DIRECT(0|1) SECONDS
//   read_bench memcpy BLOCK_BYTES SECONDS sequential|random   (where the blocks come from)
//   read_bench pread BLOCK_BYTES SECONDS sequential|random FILE   (of the page cache; neighbours
//   together, 1 MiB at most)
// Prints bytes a second and this thread's CPU seconds a GiB.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "server/base/clock.h"
#include "server/base/fd.h"
#include "server/pipeline/read_buffers.h"
#include "server/storage/engine.h"

namespace feedwater::server {
namespace {

struct Deadline {
  int64_t start = MonotonicNs(), cpu = ThreadCpuNs(), end;
  explicit Deadline(double seconds) : end(start + static_cast<int64_t>(seconds * 1e9)) {}
  bool passed() const { return MonotonicNs() >= end; }
  void Print(double bytes) const {
    const double seconds = static_cast<double>(MonotonicNs() - start) * 1e-9;
    std::printf("%.0f bytes/s, %.4f CPU s/GiB\n", bytes / seconds,
                static_cast<double>(ThreadCpuNs() - cpu) * 1e-9 / (bytes / (1 << 30)));
  }
};

int Read(char** arguments) {
  const std::filesystem::path path = arguments[1];
  const int64_t block = std::atoll(arguments[3]),
                blocks = static_cast<int64_t>(std::filesystem::file_size(path)) / block;
  const size_t depth = std::strtoul(arguments[4], nullptr, 10);
  const bool is_random = std::string(arguments[5]) == "random",
             is_direct = std::atoi(arguments[6]) != 0;
  auto roots = Roots::Create({{"data", path.parent_path().string()}});
  auto engine = CreateEngine(arguments[2], {depth});
  if (!roots.ok() || !engine.ok() || blocks < 1) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    return 1;
  }
  FileCache files(4, is_direct);
  const auto file = files.Open(**(*roots)->Find("data"), path.filename().string());
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", file.status().ToString().c_str());
    return 1;
  }
  struct Slot {
    ReadOp op;
    ReadBuffers::Buffer memory;
  };
  std::vector<Slot> slots(depth);
  std::mt19937_64 random(1);
  int64_t next = 0;
  const auto submit = [&](Slot& slot) {
    slot.op = ReadOp();
    slot.op.file = *file;
    slot.op.offset = (is_random ? static_cast<int64_t>(random() % static_cast<uint64_t>(blocks))
                                : next++ % blocks) *
                     block;
    slot.op.length = block;
    slot.op.buffer = {slot.memory.data(), slot.memory.capacity()};
    slot.op.user = &slot;
    (*engine)->Submit(&slot.op);
  };
  ReadBuffers buffers(nullptr);
  for (Slot& slot : slots) {
    auto memory = buffers.Get(ReadBufferBytes(block, (*file)->direct_io));
    if (!memory.ok()) {
      std::fprintf(stderr, "%s\n", memory.status().ToString().c_str());
      return 1;
    }
    slot.memory = *std::move(memory);
    std::memset(slot.memory.data(), 0, slot.memory.capacity());
  }
  const Deadline deadline(std::atof(arguments[7]));
  for (Slot& slot : slots) submit(slot);
  double read = 0;
  while (ReadOp* op = (*engine)->Collect(/*wait=*/true)) {
    if (!op->status.ok()) {
      std::fprintf(stderr, "%s\n", op->status.ToString().c_str());
      return 1;
    }
    read += static_cast<double>(block);
    if (!deadline.passed()) submit(*static_cast<Slot*>(op->user));
  }
  deadline.Print(read);
  return 0;
}

// Calls `move(to, from, count)` for so many seconds, which moves `count` blocks that lie together.
int Move(char** arguments, size_t blocks, size_t together, const auto& move) {
  const size_t block = std::strtoul(arguments[2], nullptr, 10);
  const bool is_random = std::string(arguments[4]) == "random";
  std::vector<size_t> order(blocks);
  std::iota(order.begin(), order.end(), size_t{0});
  if (is_random) std::shuffle(order.begin(), order.end(), std::mt19937(1));
  const size_t step = is_random ? 1 : together;
  const Deadline deadline(std::atof(arguments[3]));
  double moved = 0;
  while (!deadline.passed()) {
    for (size_t i = 0; i < blocks; i += step) {
      const size_t count = std::min(step, blocks - i);
      if (!move(i * block, order[i] * block, count * block)) return 1;
    }
    moved += static_cast<double>(blocks * block);
  }
  deadline.Print(moved);
  return 0;
}

int Copy(char** arguments) {
  const size_t block = std::strtoul(arguments[2], nullptr, 10), total = 512 << 20;
  std::vector<std::byte> from(total, std::byte{1}), to(total, std::byte{2});
  return Move(arguments, total / block, 1, [&](size_t into, size_t at, size_t bytes) {
    std::memcpy(&to[into], &from[at], bytes);
    return true;
  });
}

int ReadPlainly(char** arguments) {
  const size_t block = std::strtoul(arguments[2], nullptr, 10);
  const Fd file(open(arguments[5], O_RDONLY | O_CLOEXEC));
  const size_t blocks = std::filesystem::file_size(arguments[5]) / block;
  std::vector<std::byte> to(blocks * block, std::byte{2});
  return Move(arguments, blocks, (1 << 20) / block, [&](size_t into, size_t at, size_t bytes) {
    return pread(file.get(), &to[into], bytes, static_cast<off_t>(at)) ==
           static_cast<ssize_t>(bytes);
  });
}

}  // namespace
}  // namespace feedwater::server

int main(int argc, char** argv) {
  if (argc == 8) return feedwater::server::Read(argv);
  if (argc == 5 && std::string(argv[1]) == "memcpy") return feedwater::server::Copy(argv);
  if (argc == 6 && std::string(argv[1]) == "pread") return feedwater::server::ReadPlainly(argv);
  std::fprintf(stderr,
               "usage: read_bench FILE ENGINE BLOCK_BYTES DEPTH sequential|random DIRECT SECONDS\n"
               "       read_bench memcpy BLOCK_BYTES SECONDS sequential|random\n"
               "       read_bench pread BLOCK_BYTES SECONDS sequential|random FILE\n");
  return 2;
}
