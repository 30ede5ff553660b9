// Goal: every errno that this system knows has been decided upon, and what is decided shows in the
// status. Method: four lists that must hold them all, once each.
#include "server/storage/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::set<int> kRequest = {ENOENT, ENOTDIR, EISDIR, EACCES, EPERM, EXDEV, ELOOP, ENAMETOOLONG};
const std::set<int> kTransient = {
    EINTR,      EAGAIN,       EBUSY,        ETXTBSY,   EDEADLK,   ENOMEM,       ENOBUFS,
    EMFILE,     ENFILE,       ENOLCK,       EUSERS,    ECANCELED, ERESTART,     ENOSR,
    EIO,        EREMOTEIO,    ESTALE,       ETIME,     ETIMEDOUT, ENOTCONN,     ECONNRESET,
    EPIPE,      ECONNABORTED, ECONNREFUSED, ESHUTDOWN, EHOSTDOWN, EHOSTUNREACH, ENETDOWN,
    ENONET,     ENETUNREACH,  ENETRESET,    ENOLINK,   ENOTUNIQ,  EREMCHG,      ECOMM,
    EPROTO,     EBADE,        EBADR,        ENODATA,   EALREADY,  EINPROGRESS,  ENOKEY,
    EKEYEXPIRED};
const std::set<int> kMachine = {ENXIO,   ENODEV,     ENOMEDIUM,   EMEDIUMTYPE, ENOTBLK,
                                EUCLEAN, EBADMSG,    ENOSPC,      EDQUOT,      EROFS,
                                EFBIG,   EOVERFLOW,  ENOSYS,      EINVAL,      EBADF,
                                EFAULT,  EOPNOTSUPP, EKEYREVOKED, EKEYREJECTED};
// No answers to opening or reading a file; taken as kMachine should one come.
const std::set<int> kNoAnswers = {
    ESRCH,        E2BIG,        ENOEXEC,    ECHILD,        EEXIST,          ENOTTY,
    ESPIPE,       EMLINK,       EDOM,       ERANGE,        ENOTEMPTY,       ENOMSG,
    EIDRM,        ECHRNG,       EL2NSYNC,   EL3HLT,        EL3RST,          ELNRNG,
    EUNATCH,      ENOCSI,       EL2HLT,     EXFULL,        ENOANO,          EBADRQC,
    EBADSLT,      EBFONT,       ENOSTR,     ENOPKG,        EREMOTE,         EADV,
    ESRMNT,       EMULTIHOP,    EDOTDOT,    EBADFD,        ELIBACC,         ELIBBAD,
    ELIBSCN,      ELIBMAX,      ELIBEXEC,   EILSEQ,        ESTRPIPE,        ENOTSOCK,
    EDESTADDRREQ, EMSGSIZE,     EPROTOTYPE, ENOPROTOOPT,   EPROTONOSUPPORT, ESOCKTNOSUPPORT,
    EPFNOSUPPORT, EAFNOSUPPORT, EADDRINUSE, EADDRNOTAVAIL, EISCONN,         ETOOMANYREFS,
    ENOTNAM,      ENAVAIL,      EISNAM,     EOWNERDEAD,    ENOTRECOVERABLE, ERFKILL,
    EHWPOISON};

TEST(Fault, EveryErrnoIsDecided) {
  for (int error = 1; error < 4096; ++error) {
    if (strerrorname_np(error) == nullptr) continue;
    const auto times = kRequest.count(error) + kTransient.count(error) + kMachine.count(error) +
                       kNoAnswers.count(error);
    EXPECT_EQ(times, 1u) << strerrorname_np(error) << ": decide where it comes from";
    const Fault expected = kRequest.count(error) > 0     ? Fault::kRequest
                           : kTransient.count(error) > 0 ? Fault::kTransient
                                                         : Fault::kMachine;
    EXPECT_EQ(FaultOf(error), expected) << strerrorname_np(error);
    const absl::Status status = StorageError(error, "reading a/b.jpg");
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("a/b.jpg"), HasSubstr(absl::StrCat("errno ", error))));
    EXPECT_EQ(IsTransient(status), expected == Fault::kTransient) << strerrorname_np(error);
    EXPECT_EQ(IsTransient(Annotate(status, "record 7")), IsTransient(status));
    if (expected == Fault::kTransient) {
      EXPECT_TRUE(TellsOfTheMachine(status)) << status;
    }
  }
}

TEST(Fault, CodesSayWhatToDoNext) {
  const std::map<int, absl::StatusCode> codes = {{ENOENT, absl::StatusCode::kNotFound},
                                                 {EACCES, absl::StatusCode::kPermissionDenied},
                                                 {EIO, absl::StatusCode::kUnavailable},
                                                 {ESTALE, absl::StatusCode::kUnavailable},
                                                 {ETIMEDOUT, absl::StatusCode::kUnavailable},
                                                 {ENOTCONN, absl::StatusCode::kUnavailable},
                                                 {EMFILE, absl::StatusCode::kResourceExhausted},
                                                 {ENOMEM, absl::StatusCode::kResourceExhausted},
                                                 {ENOSYS, absl::StatusCode::kUnimplemented}};
  for (const auto& [error, code] : codes) EXPECT_EQ(StorageError(error, "x").code(), code) << error;
}

TEST(Retries, PausesGrowWithChanceAndEndInTime) {
  Retries retries;
  retries.Start(0, 10'000'000'000);
  int64_t now = 0, longest = 0;
  for (int64_t next; (next = retries.Next(now)) >= 0; now = next) {
    ASSERT_GT(next, now);
    longest = std::max(longest, next - now);
  }
  EXPECT_EQ(now, 10'000'000'000) << "the last attempt is made at the end";
  EXPECT_LE(longest, 500'000'000);
  EXPECT_GT(retries.count(), 20);
  EXPECT_LT(retries.count(), 60);
  const absl::Status gave_up = retries.GaveUp(StorageError(EIO, "reading f"), now);
  EXPECT_EQ(gave_up.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(gave_up.message()),
              AllOf(HasSubstr("reading f"), HasSubstr("errno 5"), HasSubstr("tried again"),
                    HasSubstr("10.0 s"), HasSubstr("storage.retry_for")));
  EXPECT_FALSE(IsTransient(gave_up)) << "nobody begins anew";
}

TEST(RetryTransient, TriesAgainWhatCanPassAndNothingElse) {
  int attempts = 0;
  EXPECT_TRUE(RetryTransient(60'000'000'000, [&] {
                return ++attempts < 4 ? StorageError(ESTALE, "x") : absl::OkStatus();
              }).ok());
  EXPECT_EQ(attempts, 4);
  attempts = 0;
  EXPECT_TRUE(absl::IsNotFound(RetryTransient(60'000'000'000, [&] {
    ++attempts;
    return StorageError(ENOENT, "x");
  })));
  EXPECT_EQ(attempts, 1);
  const int64_t start = MonotonicNs();
  EXPECT_TRUE(
      absl::IsUnavailable(RetryTransient(50'000'000, [] { return StorageError(EIO, "x"); })));
  EXPECT_GE(MonotonicNs() - start, 50'000'000);
  attempts = 0;
  EXPECT_TRUE(absl::IsUnavailable(RetryTransient(0, [&] {
    ++attempts;
    return StorageError(EIO, "x");
  })));
  EXPECT_EQ(attempts, 1) << "0 is not at all";
}

}  // namespace
}  // namespace feedwater::server
