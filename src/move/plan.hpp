// Whether a session can go somewhere, found out before anything stops: every reason why not.
#pragma once

#include <string>

#include "move/transplant.hpp"

namespace grus::move {

struct Plan {
  std::vector<Match> matches;
  std::vector<std::string> reasons;  // why it can't be done; empty if it can
  std::size_t for_want_of_room = 0;  // of the reasons
  std::vector<std::string> notes;    // what won't be done as it was asked for
  std::string destination;           // in words
  std::uint64_t bytes = 0;
  std::size_t objects = 0;
};

// Names the devices that it chooses at the destination. `device` is part of a device's or platform's name there, or
// PLATFORM:DEVICE by number, several with commas; empty: any. None that `avoided` means is taken.
Plan make_plan(const Inventory& inventory, Executor& to, const std::string& device, const std::string& avoided);

}  // namespace grus::move
