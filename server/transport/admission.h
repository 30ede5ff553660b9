// Decides who may connect to data.sock: within the limits of connections, of all users and of each,
// and as the access check says. A client whose access is being looked up waits here, until the
// answer comes or its time for the handshake is over.
//
// Thread safety: belongs to the data server's thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "server/transport/data_server.h"
#include "server/transport/listener.h"

namespace feedwater::server {

class Admission {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    virtual size_t sessions() = 0;
    // The client may connect, and is counted until Leave. Its peer.uid is its account.
    virtual void Enter(Accepted client) = 0;
    virtual void Refuse(Accepted client, const char* counter, const absl::Status& reason) = 0;
  };

  // Both outlive this object.
  Admission(const DataServer::Options* options, Host* host) : options_(*options), host_(*host) {}

  void Admit(Accepted client);
  void Leave(uid_t account);  // one connection of it less
  void ReconsiderWaiting();   // access may have been looked up
  // Refuses those who waited too long. Returns when the next one has; INT64_MAX: nobody waits.
  int64_t ExpireWaiting(int64_t now_ns);
  uid_t AccountOfPeer(const PeerIdentity& peer) const {
    return options_.account_of ? options_.account_of(peer.uid) : peer.uid;
  }

 private:
  struct Waiting {
    Accepted client;
    uid_t account = 0;
    int64_t deadline_ns = 0;
  };

  const DataServer::Options& options_;
  Host& host_;
  std::map<uid_t, int> connections_;  // by account, those that wait included
  std::vector<Waiting> waiting_;
};

}  // namespace feedwater::server
