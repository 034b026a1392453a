// Copies what an object holds from one executor to another: only pages that changed since they were sent. A page is
// fingerprinted from the copy that is sent, never from the device's memory a moment earlier or later.
#pragma once

#include <functional>

#include "command/executor.hpp"
#include "memory/conveyor.hpp"
#include "memory/fingerprint.hpp"

namespace grus::memory {

class DirectPath;

// Both ends: the same ids name the object there and here.
struct Route {
  Executor& from;
  Executor& to;
  ObjectId queue;  // of both
  Conveyor& conveyor;
  DirectPath* direct = nullptr;  // past this process, if there is such a way
};

inline constexpr std::size_t kChunk = std::size_t{4} << 20;  // of a copy that the host looks at

// Throws std::runtime_error.
void check(cl_int code, const char* what);
command::Fill zeroes(ObjectId memory, Range range);

struct Copied {
  std::uint64_t read = 0;  // bytes
  std::uint64_t sent = 0;
  std::uint64_t zero = 0;  // changed, but only zeroes: filled there
  // Of those two, where the host compared: what was never sent before, and what samples told of.
  std::uint64_t never_sent = 0;
  std::uint64_t sampled = 0;
  std::uint64_t direct = 0;  // sent without coming through this process
  Copied& operator+=(const Copied& more) {
    read += more.read;
    sent += more.sent;
    zero += more.zero;
    never_sent += more.never_sent;
    sampled += more.sampled;
    direct += more.direct;
    return *this;
  }
};

// Called as copying goes on; throws to end it.
using OnCopied = std::function<void(const Copied& more)>;

// Writes to an object at the destination, or clears it where there is nothing to write.
using WritePages = std::function<void(ObjectId buffer, Range range, const std::byte* from)>;
// The same for a part of a buffer, wherever it goes.
struct Part {
  Executor& from;
  ObjectId queue;
  ObjectId buffer;
  Range range;  // from the beginning of a page
  // The buffer's, where the device works in this process's memory: then nobody has to wait for what it does just now.
  const std::byte* contents = nullptr;
};
// Without pages all of it goes, and nothing is compared.
void copy_part(const Part& part, Conveyor& conveyor, SentPages* pages, Round round, const WritePages& write,
               const OnCopied& on_copied);

// Throw std::runtime_error if either side fails. What is written last may be on its way yet: see Conveyor::finish.
void copy_buffer(const Route& route, ObjectId buffer, Range range, const std::byte* contents, SentPages& pages,
                 Round round, const OnCopied& on_copied);
// Those parts of a source that works in this process's memory, whatever was sent of them before.
void copy_written(const Route& route, ObjectId buffer, std::span<const std::byte> contents,
                  std::span<const Range> written, const OnCopied& on_copied);
// Of a source where nothing changes any more, which has it in host memory.
void copy_contents(const Route& route, ObjectId buffer, std::span<const std::byte> contents, const OnCopied& on_copied);
// The bytes of the image, packed.
void copy_image(const Route& route, ObjectId image, const ImageFacts& facts, SentPages& pages, Round round,
                const OnCopied& on_copied);
std::size_t packed_size(const ImageFacts& facts);

}  // namespace grus::memory
