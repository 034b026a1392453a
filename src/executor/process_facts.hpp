// What the kernel says about this process: open device files and mapped libraries.
#pragma once

#include <map>
#include <set>
#include <string>

namespace grus {

using DeviceFiles = std::map<int, std::string>;  // descriptors, and the files that they are of

std::set<std::string> mapped_libraries();
DeviceFiles open_device_files();  // of devices that a driver may have opened
int thread_count();

}  // namespace grus
