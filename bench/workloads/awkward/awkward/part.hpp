// What the parts of the awkward workload share. A part does its work in rounds, checks each result on the spot against
// its own computation on the CPU, and adds what it got to a checksum.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frame/workload.hpp"

namespace awkward {

using bench::Event;
using bench::Owned;
using bench::Queue;
using workload::Buffer;
using workload::check;
using workload::Checksum;
using workload::Frame;
using workload::Kernel;
using workload::Phase;
using workload::Random;
using workload::Wrong;
using Words = std::vector<cl_uint>;

class Part {
 public:
  virtual ~Part() = default;
  virtual void round(Frame& frame, unsigned number, Checksum& checksum) = 0;
};

// Each with arrays of so many words.
std::unique_ptr<Part> make_events(Frame& frame, size_t words);
std::unique_ptr<Part> make_graph(Frame& frame, size_t words);
std::unique_ptr<Part> make_mappings(Frame& frame, size_t words);
std::unique_ptr<Part> make_pieces(Frame& frame, size_t words);
std::unique_ptr<Part> make_images(Frame& frame, size_t words);
std::unique_ptr<Part> make_threads(Frame& frame, size_t words);

// What the kernels do.
void scramble(Words& data, cl_uint key);
Words combined(const Words& a, const Words& b);

Words random_words(size_t count, std::uint64_t seed);
void expect_words(const std::string& what, const Words& results, const Words& expected);

Queue make_queue(const Frame& frame, cl_command_queue_properties properties = 0);
// Not known to the frame, which would read it while it is mapped.
Buffer make_buffer(const Frame& frame, size_t words, cl_mem_flags flags = CL_MEM_READ_WRITE, void* host = nullptr);

// Enqueues without waiting for anything but what is told. `event` may be null.
class Commands {
 public:
  explicit Commands(cl_command_queue queue) : queue_{queue} {}

  void write(const Buffer& to, const Words& from, const std::vector<cl_event>& after = {}, Event* event = nullptr);
  void read(const Buffer& from, Words& to, const std::vector<cl_event>& after = {}, Event* event = nullptr);
  void copy(const Buffer& from, const Buffer& to, size_t from_word, size_t to_word, size_t words,
            const std::vector<cl_event>& after = {}, Event* event = nullptr);
  void fill(const Buffer& to, cl_uint value, size_t from_word, size_t words, const std::vector<cl_event>& after = {},
            Event* event = nullptr);
  void scramble(const Kernel& kernel, const Buffer& data, cl_uint key, size_t words,
                const std::vector<cl_event>& after = {}, Event* event = nullptr);
  void combine(const Kernel& kernel, const Buffer& a, const Buffer& b, const Buffer& to, size_t words,
               const std::vector<cl_event>& after = {}, Event* event = nullptr);
  void* map(const Buffer& buffer, cl_map_flags flags, size_t from_word, size_t words, Event* event = nullptr);
  void unmap(const Buffer& buffer, void* pointer);
  void flush() { check(clFlush(queue_), "clFlush"); }
  void finish() { check(clFinish(queue_), "clFinish"); }

 private:
  cl_command_queue queue_;
};

}  // namespace awkward
