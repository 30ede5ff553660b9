#include "client/cli/counters.h"

#include <map>

#include "absl/strings/str_cat.h"

namespace feedwater::cli {

std::string CounterText(const std::string& name, uint64_t count) {
  static const auto* texts = new std::map<std::string, std::string>{
      {"accepted", "clients let in"},
      {"opened", "sessions opened"},
      {"streams_opened", "streams opened"},
      {"refused_access", "clients turned away for not being in `access`"},
      {"refused_connections", "clients turned away over limits.max_connections"},
      {"refused_connections_per_uid", "clients turned away over limits.connections_per_uid"},
      {"refused_descriptors", "clients turned away to keep descriptors for the daemon's own work"},
      {"refused_unknown", "clients turned away because the user database did not answer in time"},
      {"accept_failed", "clients turned away for want of descriptors or memory"},
      {"handshake_timeout", "connections that opened no stream in time"},
      {"reclaimed_hangup",
       "connections hung up by their client, with a session or before one was opened"},
      {"reclaimed_pidfd",
       "sessions that ended with the client's process while another process had the socket"},
      {"closed_by_daemon", "sessions that the daemon ended: closed by request, or for a restart"},
      {"protocol_version", "clients of another protocol version"},
      {"protocol_bad_magic", "connections of something that is no feedwater client"},
      {"protocol_bad_size", "sessions ended for a message of a wrong size"},
      {"protocol_bad_type", "sessions ended for a message of an unknown type"},
      {"protocol_bad_reserved", "sessions ended for a message with bits that must be zero"},
      {"protocol_unexpected", "sessions ended for a message at the wrong time"},
      {"protocol_bad_slot", "sessions ended for giving back a slot that does not exist"},
      {"protocol_bad_generation", "sessions ended for giving back a batch of another time"},
      {"protocol_not_lent", "sessions ended for giving back what was not lent"},
      {"protocol_bad_serial", "sessions ended for a seek out of order"},
      {"protocol_bad_seek", "sessions ended for a seek to nowhere"},
      {"protocol_descriptors", "sessions ended for sending file descriptors"},
      {"send_queue_full", "sessions ended because the trainer read none of its messages"},
      {"send_failed", "sessions ended because the kernel would not take a message"},
      {"control_accepted", "connections for calls"},
      {"control_refused_access", "calls refused to a user who is not in `access`"},
      {"control_refused_max_connections", "calls refused over limits.max_connections"},
      {"control_refused_connections_per_uid", "calls refused over limits.connections_per_uid"},
      {"control_refused_calls_per_uid", "connections closed over limits.calls_per_uid"},
      {"control_waits", "times that a user's calls had to wait because there were too many"},
      {"control_refused_protocol", "connections for calls closed because of what they sent"},
      {"control_refused_handshake_timeout", "connections for calls that sent nothing in time"},
      {"control_refused_descriptors",
       "calls refused to keep descriptors for the daemon's own work"},
      {"control_refused_unknown", "calls refused because the user database did not answer in time"},
      {"control_refused_unknown_peer", "calls refused because the kernel did not name the user"},
      {"control_accept_out_of_descriptors", "calls that waited for a free descriptor"},
      {"rpc_errors", "calls answered with an error"},
      {"streams_refused_sessions_per_uid", "streams refused over limits.sessions_per_uid"},
      {"streams_refused_arena_bytes_per_uid", "streams refused over limits.arena_bytes_per_uid"},
      {"bad_records", "bad records known (feedwater status --bad)"},
      {"bad_records_quarantined", "records put aside, because the daemon died of them"},
  };
  const auto found = texts->find(name);
  if (found == texts->end()) return absl::StrCat(count, " ", name);
  std::string text = found->second;
  if (count == 1) {  // the first word that ends in s is what is counted
    size_t end = text.find(' ');
    while (end != std::string::npos && text[end - 1] != 's') end = text.find(' ', end + 1);
    if (end != std::string::npos) text.erase(end - 1, 1);
  }
  return absl::StrCat(count, " ", text, " (", name, ")");
}

}  // namespace feedwater::cli
