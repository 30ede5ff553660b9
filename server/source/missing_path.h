// What is said of a dataset's path that is not there: the names in its folder that are nearest.
#pragma once

#include <string>

#include "server/source/format.h"

namespace feedwater::server {

// "; there is 'cifar-10-batches-py'", of the nearest folder on the way that is there: three names
// at most, and so many are looked at. Empty where nothing is missing or nothing is there.
std::string Neighbours(const DatasetLocation& missing);

}  // namespace feedwater::server
