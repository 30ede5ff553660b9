// The C++ client behind the driver protocol of tests/conformance/README.md: requests as JSON lines
// on stdin, answers on stdout. Knows nothing but feedwater/client.h.
#include <openssl/evp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "feedwater/client.h"

namespace {

using feedwater::Batch;
using feedwater::DType;
using nlohmann::json;

struct Loader {
  feedwater::Stream stream;
  int64_t local_rank = 0;
  bool begun = false;      // a batch of this epoch has been taken and its end not met
  bool skip_rest = false;  // `restart`: the next `next` begins the next epoch
  int64_t batches = 0, samples = 0, real_samples = 0, substituted = 0, skipped = 0;
};

// absl's code names are gRPC's, in upper case.
std::string CodeName(const absl::Status& status) { return absl::StatusCodeToString(status.code()); }

std::string Sha256(absl::Span<const std::byte> bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<char*>(digest), size));
}

template <typename T>
json Numbers(const feedwater::Tensor& tensor) {
  json values = json::array();
  for (T value : tensor.as<T>()) values.push_back(value);
  return values;
}

float HalfToFloat(uint16_t half) {
  const int exponent = (half >> 10) & 31, mantissa = half & 1023;
  const float sign = (half >> 15) ? -1.f : 1.f;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                               : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25));
}

json ValuesOf(const feedwater::Tensor& tensor) {
  json values = json::array();
  switch (tensor.dtype) {
    case DType::kUInt8:
      return Numbers<uint8_t>(tensor);
    case DType::kInt8:
      return Numbers<int8_t>(tensor);
    case DType::kInt16:
      return Numbers<int16_t>(tensor);
    case DType::kUInt16:
      return Numbers<uint16_t>(tensor);
    case DType::kInt32:
      return Numbers<int32_t>(tensor);
    case DType::kInt64:
      return Numbers<int64_t>(tensor);
    case DType::kFloat32:
      return Numbers<float>(tensor);
    case DType::kFloat64:
      return Numbers<double>(tensor);
    case DType::kBool:
      for (uint8_t value : tensor.as<uint8_t>()) values.push_back(value != 0);
      return values;
    case DType::kFloat16:
      for (uint16_t value : tensor.as<uint16_t>()) values.push_back(HalfToFloat(value));
      return values;
    case DType::kBFloat16:
      for (uint16_t value : tensor.as<uint16_t>()) {
        const uint32_t wide = static_cast<uint32_t>(value) << 16;
        float number;
        std::memcpy(&number, &wide, sizeof(number));
        values.push_back(number);
      }
      return values;
  }
  return values;
}

template <typename T>
std::optional<T> Optional(const json& request, const char* key) {
  auto it = request.find(key);
  if (it == request.end() || it->is_null()) return std::nullopt;
  return it->get<T>();
}

json Describe(const Batch& batch, const json& request) {
  const auto wanted =
      Optional<std::vector<std::string>>(request, "values").value_or(std::vector<std::string>{});
  json outputs = json::array();
  for (size_t i = 0; i < batch.size(); ++i) {
    const std::string& name = batch.name(i);
    json output = {{"name", name}, {"shape", batch[i].shape}, {"sha256", Sha256(batch[i].bytes)}};
    if (batch[i].is_ragged())
      output["offsets"] = std::vector<int64_t>(batch[i].offsets.begin(), batch[i].offsets.end());
    if (std::find(wanted.begin(), wanted.end(), name) != wanted.end())
      output["values"] = ValuesOf(batch[i]);
    outputs.push_back(std::move(output));
  }
  return {{"epoch", batch.epoch()},
          {"step", batch.step()},
          {"samples", batch.samples()},
          {"real_samples", batch.real_samples()},
          {"substituted", batch.substituted()},
          {"skipped", batch.skipped()},
          {"outputs", outputs}};
}

json Info(const Loader& loader) {
  const feedwater::Stream& stream = loader.stream;
  json fields = json::array();
  for (const feedwater::Field& field : stream.fields()) {
    fields.push_back({{"name", field.name},
                      {"dtype", std::string(feedwater::DTypeName(field.dtype))},
                      {"shape", field.shape}});
    if (field.max_rows > 0) fields.back()["shape"][0] = nullptr;
  }
  return {{"job", stream.job()},
          {"rank", stream.rank()},
          {"world_size", stream.world_size()},
          {"local_rank", loader.local_rank},
          {"batch_size", stream.batch_size()},
          {"seed", stream.seed()},
          {"records", stream.records()},
          {"steps_per_epoch", stream.steps_per_epoch()},
          {"samples_per_epoch", stream.samples_per_epoch()},
          {"classes", stream.classes()},
          {"slots", stream.slots()},
          {"epoch", stream.epoch()},
          {"warning", stream.warning()},
          {"fields", fields}};
}

absl::StatusOr<json> EmptyOr(const absl::Status& status) {
  if (!status.ok()) return status;
  return json::object();
}

class Driver {
 public:
  // The answer's "result", or an error.
  absl::StatusOr<json> Do(const json& request) {
    const std::string op = request.at("op");
    if (op == "hello")
      return json{{"client", absl::StrCat("c++ ", feedwater::kClientVersion)}, {"protocol", 1}};
    if (op == "open") return Open(request);
    if (op == "exit") return json::object();
    const std::string name = request.value("loader", "");
    if (op == "release") {
      held_.erase(name + "/" + request.value("hold", ""));
      return json::object();
    }
    if (op == "held") {
      auto held = held_.find(name + "/" + request.value("hold", ""));
      if (held == held_.end()) return absl::NotFoundError("nothing is held under that name");
      json batches = json::array();
      for (const Batch& batch : held->second) batches.push_back(Describe(batch, request));
      return json{{"batches", batches}};
    }
    auto found = loaders_.find(name);
    if (found == loaders_.end()) return absl::NotFoundError(absl::StrCat("no loader '", name, "'"));
    Loader& loader = found->second;
    if (op == "info") return Info(loader);
    if (op == "next") return Next(name, loader, request);
    if (op == "state") return json{{"state", json::parse(loader.stream.State())}};
    if (op == "load") {
      loader.begun = loader.skip_rest = false;
      return EmptyOr(loader.stream.Load(request.at("state").dump()));
    }
    if (op == "set_epoch") {
      loader.begun = loader.skip_rest = false;
      return EmptyOr(loader.stream.SetEpoch(request.at("epoch").get<uint64_t>()));
    }
    if (op == "skip") {
      return EmptyOr(loader.stream.Skip(request.at("first"), request.at("last"),
                                        Optional<uint64_t>(request, "epoch")));
    }
    if (op == "replay") {
      auto batch = loader.stream.Replay(request.at("step"), Optional<uint64_t>(request, "epoch"));
      if (!batch.ok()) return batch.status();
      return json{{"batch", Describe(*batch, request)}};
    }
    if (op == "stale") {
      auto held = held_.find(name + "/" + request.value("hold", ""));
      if (held == held_.end()) return absl::NotFoundError("nothing is held under that name");
      std::vector<const volatile std::byte*> addresses;
      for (const Batch& batch : held->second) {
        for (size_t i = 0; i < batch.size(); ++i) addresses.push_back(batch[i].bytes.data());
      }
      held_.erase(held);
      json bytes = json::array();
      for (const volatile std::byte* address : addresses)
        bytes.push_back(static_cast<int>(*address));
      return json{{"bytes", bytes}};
    }
    if (op == "forked") return Forked(name, loader, request);
    if (op == "restart") {
      loader.skip_rest = loader.begun;
      return json::object();
    }
    if (op == "stats") {
      return json{{"batches", loader.batches},
                  {"samples", loader.samples},
                  {"real_samples", loader.real_samples},
                  {"substituted", loader.substituted},
                  {"skipped", loader.skipped}};
    }
    if (op == "close") {
      loaders_.erase(found);
      return json::object();
    }
    return absl::UnimplementedError(absl::StrCat("unknown op '", op, "'"));
  }

  // What `error` says.
  json ErrorOf(const json& request, const absl::Status& status) {
    json error = {{"code", CodeName(status)}, {"message", std::string(status.message())}};
    if (const auto sample = feedwater::BadSampleOf(status)) {
      error["record"] = sample->record;
      error["path"] = sample->path;
      error["reason"] = sample->reason;
    }
    if (status.code() == absl::StatusCode::kUnavailable) {
      auto loader = loaders_.find(request.value("loader", ""));
      error["state"] =
          loader == loaders_.end() ? json() : json::parse(loader->second.stream.State());
    }
    if (feedwater::IsNotServed(status) && feedwater::IsDaemonLost(status))
      error["not_served"] = true;
    return error;
  }

 private:
  absl::StatusOr<json> Open(const json& request) {
    auto client =
        feedwater::Client::Connect(Optional<std::string>(request, "address").value_or(""));
    if (!client.ok()) return client.status();
    feedwater::StreamOptions options;
    options.pipeline = request.at("pipeline");
    options.batch_size = Optional<int64_t>(request, "batch_size");
    options.rank = Optional<int64_t>(request, "rank");
    options.world_size = Optional<int64_t>(request, "world_size");
    options.seed = Optional<uint64_t>(request, "seed");
    options.job = Optional<std::string>(request, "job").value_or("");
    options.slots = Optional<uint32_t>(request, "slots");
    if (auto state = request.find("state"); state != request.end() && !state->is_null())
      options.state = state->dump();
    options.verify = Optional<bool>(request, "verify").value_or(false);
    options.debug_protect = Optional<bool>(request, "debug_protect");
    options.reconnect_timeout_s =
        Optional<double>(request, "reconnect_timeout").value_or(options.reconnect_timeout_s);
    if (const char* stall = std::getenv("FEEDWATER_STALL_TIMEOUT"))
      options.stall_timeout_s = std::atof(stall);
    absl::StatusOr<feedwater::Stream> stream = client->Open(options);
    if (!stream.ok()) return stream.status();
    const std::string name = request.at("loader");
    loaders_.erase(name);
    Loader& loader = loaders_.emplace(name, Loader{*std::move(stream)}).first->second;
    for (const char* variable : {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"}) {
      if (const char* value = std::getenv(variable)) {
        loader.local_rank = std::atoll(value);
        break;
      }
    }
    return Info(loader);
  }

  absl::StatusOr<json> Next(const std::string& name, Loader& loader, const json& request) {
    if (loader.skip_rest) {
      loader.skip_rest = loader.begun = false;
      if (absl::Status moved = loader.stream.SetEpoch(loader.stream.epoch() + 1); !moved.ok())
        return moved;
    }
    const int64_t count = Optional<int64_t>(request, "count").value_or(1);
    const auto hold = Optional<std::string>(request, "hold");
    json batches = json::array();
    bool end = false;
    for (int64_t i = 0; count == 0 || i < count; ++i) {
      absl::StatusOr<std::optional<Batch>> batch = loader.stream.NextInEpoch();
      if (!batch.ok()) return batch.status();
      if (!batch->has_value()) {
        end = true;
        loader.begun = false;
        break;
      }
      loader.begun = true;
      ++loader.batches;
      loader.samples += (*batch)->samples();
      loader.real_samples += (*batch)->real_samples();
      loader.substituted += (*batch)->substituted();
      loader.skipped += (*batch)->skipped();
      batches.push_back(Describe(**batch, request));
      if (hold) held_[name + "/" + *hold].push_back(**std::move(batch));
    }
    return json{{"batches", batches}, {"end", end}};
  }

  absl::StatusOr<json> Forked(const std::string& name, Loader& loader, const json& request) {
    const pid_t child = fork();
    if (child < 0) return absl::ResourceExhaustedError("no process to be had");
    if (child == 0) {
      const bool refused = absl::IsFailedPrecondition(loader.stream.NextInEpoch().status()) &&
                           absl::IsFailedPrecondition(loader.stream.SetEpoch(7));
      held_.erase(name + "/" + request.value("hold", ""));
      loaders_.erase(name);
      _exit(refused ? 0 : 1);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0)
      return absl::InternalError(absl::StrCat("the child ended with wait status ", status));
    return json::object();
  }

  std::map<std::string, Loader> loaders_;
  std::map<std::string, std::vector<Batch>> held_;
};

}  // namespace

int main() {
  Driver driver;
  std::string line;
  while (std::getline(std::cin, line)) {
    const json request = json::parse(line, nullptr, /*allow_exceptions=*/false);
    absl::StatusOr<json> result = absl::InvalidArgumentError("not a request");
    try {
      if (request.is_object()) result = driver.Do(request);
    } catch (const json::exception& e) {
      result = absl::InvalidArgumentError(e.what());
    }
    json answer = {{"id", request.is_object() ? request.value("id", json()) : json()},
                   {"ok", result.ok()}};
    if (result.ok()) {
      answer["result"] = *result;
    } else {
      answer["error"] =
          driver.ErrorOf(request.is_object() ? request : json::object(), result.status());
    }
    std::cout << answer.dump() << std::endl;
    if (request.is_object() && request.value("op", "") == "exit") return 0;
  }
  return 0;
}
