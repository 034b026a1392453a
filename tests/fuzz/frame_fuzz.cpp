// What comes from a peer: heads, bodies, and every structure that a body can hold. What can be read can be written
// again, and is the same then.
#include <cstdlib>

#include "channel/fields.hpp"
#include "channel/input.hpp"
#include "memory_stream.hpp"

namespace grus {
namespace {

template <typename T>
void read_and_write(std::span<const std::byte> bytes) {
  T value{};
  wire::Reader reader{bytes};
  reader(value);
  Bytes written;
  wire::Writer{written}(value);
  T again{};
  wire::Reader second{written};
  second(again);
  second.expect_end();
  Bytes written_again;
  wire::Writer{written_again}(again);
  if (written != written_again) std::abort();
}

template <typename... Structures>
void read_one_of(std::size_t which, std::span<const std::byte> bytes) {
  std::size_t index = 0;
  ((index++ == which % sizeof...(Structures) ? read_and_write<Structures>(bytes) : void()), ...);
}

void read_structure(std::size_t which, std::span<const std::byte> bytes) {
  using namespace command;
  read_one_of<PlatformDescription, DriverDescription, NewBuffer, NewImage, NewSampler, BuildOrder, DeviceBuild,
              BuildOutcome, ArgumentFacts, KernelFacts, Argument, Read, Write, ReadRectangle, WriteRectangle, ReadImage,
              WriteImage, Copy, CopyRectangle, Fill, CopyImage, CopyImageToBuffer, CopyBufferToImage, FillImage,
              MapBuffer, MapImage, Unmap, Marker, Barrier, std::vector<Bytes>, std::vector<ObjectId>,
              std::vector<std::string>, std::map<cl_uint, Bytes>>(which, bytes);
}

void read_results(std::span<const std::byte> bytes) {
  wire::Reader reader{bytes};
  (void)reader.take_result<ImageLayout>();
  (void)reader.take_result<std::vector<Bytes>>();
  (void)reader.take_result<std::string>();
}

// A stream of messages, each with a body of some structure, and bulk.
void read_messages(std::span<const std::byte> bytes, std::size_t piece) {
  fuzz::MemoryStream stream{bytes, piece};
  channel::Input input{stream};
  Bytes body;
  for (;;) {
    const channel::Head head = input.read_head();
    // More than there is can't come: the limit of a body is tested without its memory.
    if (head.body > bytes.size()) throw wire::BadMessage{"a body that doesn't come"};
    input.read_body(head, body);
    try {
      read_structure(static_cast<std::size_t>(head.kind), body);
    } catch (const wire::BadMessage&) {
    }
    Bytes bulk(std::min<std::size_t>(head.bulk, bytes.size() + 1));
    input.read(bulk.data(), bulk.size());
  }
}

}  // namespace
}  // namespace grus

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size < 2) return 0;
  const std::span bytes{reinterpret_cast<const std::byte*>(data) + 2, size - 2};
  try {
    if (data[0] == 0) {
      grus::read_messages(bytes, std::size_t{1} + data[1] * std::size_t{data[1]});
    } else if (data[0] == 1) {
      grus::read_results(bytes);
    } else {
      grus::read_structure(data[1], bytes);
    }
  } catch (const grus::wire::BadMessage&) {
  } catch (const grus::channel::Lost&) {
  }
  return 0;
}
