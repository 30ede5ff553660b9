#include "client/cpp/outage.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/control_channel.h"

namespace feedwater {
namespace {

constexpr double kTellAfterS = 1;  // a restart that is quicker is nobody's business
constexpr double kEndlessS = 1e9;
constexpr auto kAnswer = std::chrono::seconds(2);  // in which a daemon that runs says how it is

void Tell(const Outage::Notice& notice, const std::string& text) {
  if (notice) {
    notice(text);
  } else {
    (void)std::fprintf(stderr, "feedwater: %s\n", text.c_str());
  }
}

}  // namespace

int64_t SecondsToNs(double seconds) {
  return seconds > 0 ? static_cast<int64_t>(std::min(seconds, kEndlessS) * 1e9) : 0;
}

Outage::Outage(const Notice& notice, const std::string& address, absl::string_view reason,
               double timeout_s)
    : notice_(notice), address_(address), reason_(reason), began_ns_(MonotonicNs()) {
  if (!(timeout_s > kTellAfterS)) return;
  try {
    thread_ = std::thread([this, timeout_s] { Run(timeout_s); });
  } catch (const std::system_error&) {  // no thread to be had: it is not told, then
  }
}

Outage::~Outage() { Stop(); }

void Outage::IsOver() {
  Stop();
  if (!told_) return;
  const double away_s = static_cast<double>(MonotonicNs() - began_ns_) * 1e-9;
  Tell(notice_,
       absl::StrFormat("the daemon at %s serves again after %.1f s; going on with the next batch",
                       address_, away_s));
  told_ = false;
}

void Outage::Run(double timeout_s) {
  {
    std::unique_lock<std::mutex> lock(mu_);
    if (stopping_.wait_for(lock, std::chrono::duration<double>(kTellAfterS),
                           [this] { return stop_; }))
      return;
  }
  told_ = true;
  Tell(notice_,
       absl::StrCat("the daemon at ", address_, " cannot be reached (", reason_, "): waiting ",
                    timeout_s < kEndlessS ? absl::StrCat("up to ", timeout_s, " s") : "without end",
                    " (reconnect_timeout_s) until it serves again; no batch is lost"));
}

void Outage::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    stop_ = true;
  }
  stopping_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Silence::Look() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAnswer);
  v1::GetStatusResponse answer;
  const grpc::Status status = ConnectControl(address_)->GetStatus(&context, {}, &answer);
  if (status.ok()) return End();
  if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) return;  // the data socket tells
  if (std::exchange(told_, true)) return;
  Tell(notice_, absl::StrCat("no batch, and no answer from the daemon at ", address_,
                             ": it is stopped or frozen (kill -CONT its process), or has no CPU; "
                             "waiting until it continues, nothing is lost"));
}

void Silence::End() {
  if (!std::exchange(told_, false)) return;
  const double away_s = static_cast<double>(MonotonicNs() - began_ns_) * 1e-9;
  Tell(notice_, absl::StrFormat("the daemon at %s continues after %.1f s", address_, away_s));
}

}  // namespace feedwater
