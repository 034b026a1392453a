// Checkpoint files: what a session's memory objects held at one moment, for the session itself to go back to.
#pragma once

#include <map>
#include <string>

#include "memory/copy.hpp"
#include "move/inventory.hpp"
#include "move/shelf.hpp"

namespace grus::move {

// Refused if something else than a checkpoint is there.
void expect_room_for_checkpoint(const std::string& path);
// Leaves no file behind if it can't be written whole. Throws Refused.
void write_checkpoint(const std::string& path, const Shelf& shelf, const Inventory& inventory);

struct Checkpoint {
  std::string objects;                      // that the session had
  std::map<std::uint64_t, Bytes> contents;  // by the object's id
};
// Refused if the file is damaged or another session's.
Checkpoint read_checkpoint(const std::string& path, const memory::OnCopied& on_copied);
// With the gate closed and everything drained. Refused if objects were made or freed since.
void check_fits(const Checkpoint& checkpoint, const Inventory& inventory);
// The same; puts back what the objects held then.
void put_back(const Checkpoint& checkpoint, const Inventory& inventory, const memory::OnCopied& on_copied);

}  // namespace grus::move
