// What the kernel says about this process: open device files and mapped libraries.
#pragma once

#include <set>
#include <string>

namespace grus {

std::set<std::string> mapped_libraries();
std::set<int> open_device_files();  // descriptors of character devices that a driver may have opened
int thread_count();

}  // namespace grus
