#include "server/storage/fault.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/clock.h"

namespace feedwater::server {
namespace {

constexpr char kTransientUrl[] = "feedwater/transient";
constexpr int64_t kFirstPauseNs = 2'000'000, kLongestPauseNs = 500'000'000;

// Something of this machine has run out.
bool IsShortage(int error) {
  return error == ENOMEM || error == EMFILE || error == ENFILE || error == ENOBUFS;
}

double Chance() {
  thread_local std::minstd_rand random(std::random_device{}());
  return std::uniform_real_distribution<double>(0.5, 1.0)(random);
}

}  // namespace

Fault FaultOf(int error) {
  switch (error) {
    // The path leads nowhere, not to a file, or where this user may not go.
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case EXDEV:
    case ELOOP:
    case ENAMETOOLONG:
      return Fault::kRequest;

    // Interrupted, busy, or short of something: of this machine's own.
    case EINTR:
    case EAGAIN:
    case EBUSY:
    case ETXTBSY:
    case EDEADLK:
    case ENOMEM:
    case ENOBUFS:
    case EMFILE:
    case ENFILE:
    case ENOLCK:
    case EUSERS:
    case ECANCELED:
    case ERESTART:
    case ENOSR:
    // The device or the server behind the file system does not answer, or not rightly.
    case EIO:
    case EREMOTEIO:
    case ESTALE:
    case ETIME:
    case ETIMEDOUT:
    case ENOTCONN:
    case ECONNRESET:
    case ECONNABORTED:
    case ECONNREFUSED:
    case EPIPE:
    case ESHUTDOWN:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETUNREACH:
    case ENETRESET:
    case ENONET:
    case ENOLINK:
    case ENOTUNIQ:
    case EREMCHG:
    case ECOMM:
    case EPROTO:
    case EBADE:  // NFS and SMB clients pass on what their servers say
    case EBADR:
    case ENODATA:
    case EALREADY:
    case EINPROGRESS:
    // A ticket or key of a network file system is being renewed.
    case ENOKEY:
    case EKEYEXPIRED:
      return Fault::kTransient;

    // What does not pass: the device is gone, the file system is damaged, the call is not there.
    case ENXIO:
    case ENODEV:
    case ENOMEDIUM:
    case EMEDIUMTYPE:
    case ENOTBLK:
    case EUCLEAN:
    case EBADMSG:
    case ENOSPC:
    case EDQUOT:
    case EROFS:
    case EFBIG:
    case EOVERFLOW:
    case ENOSYS:
    case EOPNOTSUPP:
    case EINVAL:
    case EBADF:
    case EFAULT:
    case EKEYREVOKED:
    case EKEYREJECTED:
    default:  // not an answer to opening or reading a file
      return Fault::kMachine;
  }
}

absl::Status StorageStatus(int error, absl::string_view message) {
  const bool is_transient = FaultOf(error) == Fault::kTransient;
  absl::Status status(!is_transient       ? absl::ErrnoToStatusCode(error)
                      : IsShortage(error) ? absl::StatusCode::kResourceExhausted
                                          : absl::StatusCode::kUnavailable,
                      message);
  if (is_transient) status.SetPayload(kTransientUrl, absl::Cord());
  return status;
}

absl::Status StorageError(int error, absl::string_view what) {
  return StorageStatus(error, ErrnoStatus(error, what).message());
}

bool IsTransient(const absl::Status& status) {
  return !status.ok() && status.GetPayload(kTransientUrl).has_value();
}

bool TellsOfTheMachine(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
}

absl::Status FileChangedError(absl::string_view message) {
  return absl::FailedPreconditionError(message);
}

void Retries::Start(int64_t now_ns, int64_t for_ns) {
  began_ns_ = now_ns;
  until_ns_ = now_ns + for_ns;
  pause_ns_ = kFirstPauseNs;
  count_ = 0;
}

int64_t Retries::Next(int64_t now_ns) {
  if (now_ns >= until_ns_) return -1;
  const auto pause = static_cast<int64_t>(Chance() * static_cast<double>(pause_ns_));
  pause_ns_ = std::min(2 * pause_ns_, kLongestPauseNs);
  ++count_;
  return std::min(now_ns + pause, until_ns_);  // the last attempt is made at the end
}

absl::Status Retries::GaveUp(const absl::Status& status, int64_t now_ns) const {
  if (count_ == 0) return status;
  absl::Status told(status.code(),
                    absl::StrCat(status.message(), "; tried again ", count_, " times in ",
                                 absl::StrFormat("%.1f", 1e-9 * double(now_ns - began_ns_)),
                                 " s (storage.retry_for)"));
  return told;  // without the mark: nobody is to begin anew
}

absl::Status RetryTransient(int64_t for_ns, const std::function<absl::Status()>& attempt) {
  Retries retries;
  for (;;) {
    absl::Status status = attempt();
    if (!IsTransient(status)) return status;
    const int64_t now = MonotonicNs();
    if (!retries.started()) retries.Start(now, for_ns);
    const int64_t next = retries.Next(now);
    if (next < 0) return retries.GaveUp(status, now);
    std::this_thread::sleep_for(std::chrono::nanoseconds(next - now));
  }
}

}  // namespace feedwater::server
