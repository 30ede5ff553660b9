// Ctrl-C and SIGTERM in commands that have something to bring to an end first: a record at hand, a
// folder that is to be removed.
#pragma once

namespace feedwater::cli {

// From now on the first of these signals is told by Interrupted() alone; the second one ends the
// program.
void CatchInterrupts();
bool Interrupted();

}  // namespace feedwater::cli
