// The work of feedwater-columnar: one file of Arrow or Parquet to columns and rows
// (server/source/columnar_rows.h).
#pragma once

#include "server/source/columnar_rows.h"

namespace feedwater::server {

// Reads the request that stands on the socket first. False: the daemon is gone, or speaks another
// version.
bool ReadRequest(int socket, ColumnarRequest* request);

// Libraries that look around on the machine when they begin do so now, before the sandbox.
void WarmUpArrow();

// Writes everything to the socket, the end or the error included. The exit status.
int ServeColumnar(int socket, int file, const ColumnarRequest& request, bool is_sandboxed);

}  // namespace feedwater::server
