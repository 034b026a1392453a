// Checkpoint files: what a session's memory objects held at one moment, for the session itself to go back to.
#pragma once

#include <string>

#include "move/inventory.hpp"
#include "move/shelf.hpp"

namespace grus::move {

// Leaves no file behind if it can't be written whole. Throws Refused.
void write_checkpoint(const std::string& path, const Shelf& shelf, const Inventory& inventory);
// Puts back what the objects held then. Refused if the file is damaged, is another session's, or if objects were made
// or freed since.
void restore_checkpoint(const std::string& path);

}  // namespace grus::move
