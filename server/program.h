// The program feedwaterd: its command line, and one daemon in the foreground until a signal.
#pragma once

namespace feedwater::server {

// What main does. 0: done; 1: it failed; 2: wrong usage or configuration.
int RunProgram(int argc, char** argv);

}  // namespace feedwater::server
