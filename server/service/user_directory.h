// The groups that the machine's user database gives a user. The database may be a directory server
// at the other end of a network (LDAP, SSSD), which takes seconds or never answers: so nobody here
// waits for it. Who asks gets what is known, or nothing yet; the look-up goes on in a thread of its
// own, and the listener is called when it is done. Answers are kept for a minute.
//
// Thread-safe. A look-up that stands still holds one of a few threads; where all of them stand
// still, further users stay unknown. One person may have many numbers (subordinate ones): few of an
// account's are looked up at a time, and not many are kept.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>

namespace feedwater::server {

class UserDirectory {
 public:
  static constexpr int kThreads = 4;  // look-ups at a time
  static constexpr size_t kMaxUsersKept = 4096;
  static constexpr size_t kMaxKeptOfAccount = 64;
  static constexpr size_t kMaxAskedOfAccount = 2;

  using Lookup = std::function<std::set<gid_t>(uid_t)>;
  // `account_of`: who pays for a user; null: each user does.
  explicit UserDirectory(Lookup lookup = AskMachine,
                         std::function<uid_t(uid_t)> account_of = nullptr);
  // Waits for a listener that is being called, and not for the database.
  ~UserDirectory();

  // nullopt: not known yet, and being looked up, as soon as there is room for one more.
  std::optional<std::set<gid_t>> Groups(uid_t uid);
  // Called after each look-up, from a thread of its own; null ends that, and waits for a call in
  // progress. REQUIRES: not called by the listener.
  void Listen(std::function<void()> listener);
  void Forget();  // what is known, so that it is looked up anew

  static std::set<gid_t> AskMachine(uid_t uid);  // slow; empty for unknown users

 private:
  struct State;
  static void Work(const std::shared_ptr<State>& state);
  const std::shared_ptr<State> state_;  // shared with the threads, which may outlive this object
};

}  // namespace feedwater::server
