#include "server/process.h"
#include "server/program.h"

int main(int argc, char** argv) {
  feedwater::server::BoundHeaps();
  feedwater::server::InstallTerminateHandler();
  return feedwater::server::RunProgram(argc, argv);
}
