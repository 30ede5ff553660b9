// make_photos DIR: draws a set of photos as an image folder, for the demo and for benchmarks. The
// same options give the same files on any number of threads. A set that is already there is left
// alone; another set that this program made is replaced; a folder with anything else in it is
// refused.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "server/base/cpus.h"
#include "server/base/status.h"
#include "server/base/units.h"
#include "tests/testing/photos/painter.h"
#include "tests/testing/photos/photo_file.h"

namespace feedwater::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kDrawing = 1;  // version of the painter; change it when the pixels change
constexpr char kMarker[] = ".make_photos.json";

struct Options {
  fs::path folder;
  int64_t count = 3000;
  int classes = 20;
  uint64_t seed = 1;
  std::string jobs = "auto";
  std::string format = "jpeg";
};

json Marker(const Options& options, const char* state) {
  return {{"drawing", kDrawing},  {"count", options.count},   {"classes", options.classes},
          {"seed", options.seed}, {"format", options.format}, {"state", state}};
}

absl::Status WriteFile(const fs::path& path, const void* data, size_t size) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return server::ErrnoStatus(errno, path.string());
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(fd, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      close(fd);
      return server::ErrnoStatus(error, path.string());
    }
    next += written;
    size -= static_cast<size_t>(written);
  }
  if (close(fd) != 0) return server::ErrnoStatus(errno, path.string());
  return absl::OkStatus();
}

absl::Status WriteMarker(const Options& options, const char* state) {
  const std::string text = Marker(options, state).dump() + "\n";
  return WriteFile(options.folder / kMarker, text.data(), text.size());
}

std::string ClassName(int64_t number) { return absl::StrFormat("class_%02d", number); }

// True for `prefix`, digits, `suffix`.
bool IsNumbered(absl::string_view name, absl::string_view prefix, absl::string_view suffix) {
  return absl::ConsumePrefix(&name, prefix) && absl::ConsumeSuffix(&name, suffix) &&
         !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isdigit(c);
         });
}

// Takes away the class folders of an earlier set: only what has names that this program gives.
absl::Status RemoveOldSet(const fs::path& folder, bool has_marker) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name == kMarker) continue;
    if (!has_marker || !IsNumbered(name, "class_", "") || !entry.is_directory()) {
      return absl::FailedPreconditionError(
          absl::StrCat(folder.string(), " holds ", name,
                       ", which make_photos did not make; choose an empty folder"));
    }
    for (const auto& photo : fs::directory_iterator(entry.path(), error)) {
      const std::string file = photo.path().filename().string();
      if (IsNumbered(file, "photo_", ".jpg") || IsNumbered(file, "photo_", ".png"))
        fs::remove(photo.path(), error);
    }
    fs::remove(entry.path(), error);
    if (error) return server::ErrnoStatus(error.value(), entry.path().string());
  }
  return error ? server::ErrnoStatus(error.value(), folder.string()) : absl::OkStatus();
}

// True when the whole set is there already; otherwise the class folders are there and empty.
absl::StatusOr<bool> Prepare(const Options& options) {
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) return server::ErrnoStatus(error.value(), options.folder.string());

  json marker;
  if (std::ifstream file(options.folder / kMarker); file)
    marker = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (marker == Marker(options, "complete")) return true;
  FW_RETURN_IF_ERROR(RemoveOldSet(options.folder, marker.is_object()));
  FW_RETURN_IF_ERROR(WriteMarker(options, "unfinished"));
  for (int64_t i = 0; i < std::min<int64_t>(options.classes, options.count); ++i) {
    fs::create_directory(options.folder / ClassName(i), error);
    if (error) return server::ErrnoStatus(error.value(), (options.folder / ClassName(i)).string());
  }
  return false;
}

// What the drawing threads have done so far.
struct Progress {
  std::atomic<int64_t> next = 0, done = 0, bytes = 0;
  std::atomic<bool> has_failed = false;
  std::mutex mutex;
  absl::Status failure;  // the first one; guarded by mutex
};

absl::Status DrawOne(const Options& options, int64_t number, Painter& painter, Photo& photo,
                     std::vector<uint8_t>& bytes) {
  const int64_t photo_class = number % options.classes;
  painter.Paint(options.seed, static_cast<uint64_t>(number), static_cast<int>(photo_class), &photo);
  const bool is_png = options.format == "png" || (options.format == "mixed" && number % 10 == 9);
  FW_RETURN_IF_ERROR(is_png ? EncodePng(photo, &bytes) : EncodeJpeg(photo, &bytes));
  const std::string name = absl::StrFormat("photo_%06d.%s", number, is_png ? "png" : "jpg");
  return WriteFile(options.folder / ClassName(photo_class) / name, bytes.data(), bytes.size());
}

void DrawAll(const Options& options, Progress* progress) {
  Painter painter;
  Photo photo;
  std::vector<uint8_t> bytes;
  while (!progress->has_failed) {
    const int64_t number = progress->next++;
    if (number >= options.count) return;
    absl::Status drawn = DrawOne(options, number, painter, photo, bytes);
    if (!drawn.ok()) {
      const std::lock_guard lock(progress->mutex);
      if (!progress->has_failed.exchange(true)) progress->failure = std::move(drawn);
      return;
    }
    progress->bytes += static_cast<int64_t>(bytes.size());
    ++progress->done;
  }
}

void ShowBar(const Options& options, int64_t done, double seconds) {
  constexpr int64_t kWidth = 40;
  const int64_t filled = done * kWidth / options.count;
  absl::FPrintF(stderr, "\rdrawing photos [%s%s] %d/%d, %.0f/s ",
                std::string(static_cast<size_t>(filled), '#'),
                std::string(static_cast<size_t>(kWidth - filled), ' '), done, options.count,
                seconds > 0 ? static_cast<double>(done) / seconds : 0.0);
  std::fflush(stderr);
}

absl::Status MakePhotos(const Options& options) {
  auto cpus = server::ChooseCpus(options.jobs, -1);
  if (!cpus.ok()) return server::Annotate(cpus.status(), "--jobs");
  FW_ASSIGN_OR_RETURN(const bool is_there, Prepare(options));
  if (is_there) {
    absl::FPrintF(stderr, "%d photos are already in %s\n", options.count, options.folder.string());
    return absl::OkStatus();
  }

  const auto started = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  };
  Progress progress;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < cpus->size(); ++i)
    threads.emplace_back(DrawAll, std::cref(options), &progress);
  if (isatty(STDERR_FILENO) != 0) {
    while (progress.done < options.count && !progress.has_failed) {
      ShowBar(options, progress.done, elapsed());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    absl::FPrintF(stderr, "\r\033[K");
  }
  for (auto& thread : threads) thread.join();
  FW_RETURN_IF_ERROR(progress.failure);
  FW_RETURN_IF_ERROR(WriteMarker(options, "complete"));
  absl::FPrintF(stderr, "drew %d photos of %s on average in %s\n", options.count,
                server::FormatBytes(progress.bytes / options.count),
                server::FormatSeconds(elapsed()));
  return absl::OkStatus();
}

}  // namespace
}  // namespace feedwater::testing

int main(int argc, char** argv) {
  feedwater::testing::Options options;
  CLI::App app("Draws photos for the demo and for benchmarks, as an image folder.", "make_photos");
  app.add_option("DIR", options.folder, "Folder to fill; made when missing")->required();
  app.add_option("--count", options.count, "Number of photos")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000'000));
  app.add_option("--classes", options.classes, "Number of class folders")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000));
  app.add_option("--seed", options.seed, "Another seed gives other photos")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--jobs", options.jobs, "Threads: auto or a count")->capture_default_str();
  app.add_option("--format", options.format, "jpeg, png, or mixed: every tenth is a PNG")
      ->capture_default_str()
      ->check(CLI::IsMember({"jpeg", "png", "mixed"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  const absl::Status made = feedwater::testing::MakePhotos(options);
  if (made.ok()) return 0;
  absl::FPrintF(stderr, "make_photos: %s\n", std::string(made.message()));
  return made.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}
