// COCO's files of annotations in a folder of which nothing else is known, and the folders of their
// images: what the format `coco` has to be told.
#pragma once

#include <string>
#include <vector>

#include "server/source/format.h"

namespace feedwater::cli {

struct CocoFiles {
  std::string annotations, images;  // below the root
};
// Looks into JSON files of the folder and of its folder `annotations`, and for the first image that
// each names; into so many files and folders at most. Files of instances stand first. `reasons`
// receives why another JSON file is none. Where `data` is a JSON file, into that one, and for its
// images in its folder and in the one above.
std::vector<CocoFiles> FindCoco(const server::DatasetLocation& data,
                                std::vector<std::string>* reasons);

}  // namespace feedwater::cli
