// Whose turn it is, by CPU time. Between users: the one who has used the least comes first, however
// many jobs it has. Between a user's jobs: the one that has used the least. A user or job that was
// idle gets little credit for it, and one that leaves keeps its debt. (Start-time fair queueing,
// Goyal, Vin and Cheng 1996, in two levels.)
//
// Not thread-safe: guarded by the scheduler's lock.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

namespace feedwater::server {

class FairShares {
 public:
  // The least one comes first: what the user has used, what the job has used.
  using Used = std::pair<double, double>;

  // Returns what the new job counts as having used.
  double JobBegins(uint32_t uid);
  void JobEnds(uint32_t uid);
  int users() const { return users_with_jobs_; }

  // REQUIRES: the user has a job. `job_ns`: what that job has used; raised where it was idle.
  Used UsedBy(uint32_t uid, double* job_ns);
  void Picked(uint32_t uid, Used used);
  // CPU time for a job, estimates included; less than 0 takes them back.
  void Use(uint32_t uid, double ns, double* job_ns);
  // CPU time for a user, if it has jobs or debts.
  void Charge(uint32_t uid, double ns);

 private:
  struct User {
    int jobs = 0;
    double used_ns = 0;
    double floor_ns = 0;  // of the job picked last; never falls
  };
  std::map<uint32_t, User> users_;  // also those without a job who have had more than others
  int users_with_jobs_ = 0;
  double floor_ns_ = 0;  // of the user picked last; never falls
};

}  // namespace feedwater::server
