// Memory that a guest shares with its host: a file at the host, behind a PCI device of the guest (QEMU's
// ivshmem-plain), whose memory the guest's programs map. Each session has a slice of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "channel/shared_memory.hpp"

namespace grus::channel {

struct Slice {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

inline constexpr std::uint64_t kSmallestSlice = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kUsualSlice = std::uint64_t{64} << 20;

// How a session divides its slice.
SharedSizes sizes_in(const Slice& slice);
// Whether the file has it, and it can be mapped. Whoever names it may be wrong.
bool is_slice_of(int file, const Slice& slice);

// The host's side: who has which slice. It is free again when neither the server's worker nor the guest has it.
class Area {
 public:
  // Throws Lost if the file isn't there, is too small, or belongs to another guest's relay.
  Area(const std::string& path, std::uint64_t slice_size);

  struct Taken {
    Slice slice;
    Descriptor sign;  // the worker's, who has it until it ends
  };
  int file() const { return file_.get(); }
  std::size_t slices() const { return all_.size(); }
  std::optional<Taken> take(std::uint32_t connection);
  // The guest says that it still has it, of a connection that this relay doesn't know.
  void note_held(std::uint32_t connection, const Slice& slice);
  void is_let_go(std::uint32_t connection);
  void are_all_let_go();

  std::vector<int> signs() const;  // to be looked at again when one of them ends
  void look_at_signs();

 private:
  struct Piece {
    Descriptor sign{};                          // of its worker; none: it has ended
    std::optional<std::uint32_t> connection{};  // of the guest's
  };
  void clear(std::size_t index) const;

  Descriptor file_;
  std::uint64_t size_;  // of a slice
  std::vector<Piece> all_;
};

// The guest's side.
struct Bar {
  Descriptor file;
  std::uint64_t size = 0;
  std::string path;
};
// By its PCI address, or the path of a file that stands for it; empty: the only one there is. Throws Lost.
Bar open_bar(const std::string& device);

}  // namespace grus::channel
