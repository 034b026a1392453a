// As the head of every command that is told to a worker: where it goes.
#pragma once

#include "channel/wire.hpp"
#include "command/executor.hpp"

namespace grus {

struct Place {
  const Placement& placement;
};
inline void fields(wire::Writer& writer, const Place& place) {
  writer(place.placement.queue, place.placement.event, place.placement.blocking, place.placement.waits);
}

}  // namespace grus
