// What libpng says. OpenCV decodes PNGs with libpng's default handlers, which print to stderr: a
// line for each damaged file, and one for every good one whose colour profile is not quite right,
// around whatever log the daemon keeps. Here errors are kept for the decoder's status instead, and
// warnings are dropped.
#pragma once

#include <string>

namespace feedwater::server {

// What libpng found wrong on this thread since the last call; "" when nothing.
std::string TakePngError();

}  // namespace feedwater::server
