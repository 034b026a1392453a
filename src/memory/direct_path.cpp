#include "memory/direct_path.hpp"

#include <algorithm>
#include <future>

#include "base/log.hpp"

namespace grus::memory {
namespace {

// That are waited for, one after the other.
constexpr std::size_t kPart = std::size_t{16} << 20;
constexpr std::size_t kPartInStop = 8 * kPart;

}  // namespace

std::unique_ptr<DirectPath> DirectPath::open(Executor& from, Executor& to, std::string& why) {
  const auto ticket = to.expect_pages();
  why = ticket ? from.connect_pages(*ticket) : "the destination gives no ticket";
  return why.empty() ? std::unique_ptr<DirectPath>{new DirectPath{from, to}} : nullptr;
}

DirectPath::~DirectPath() {
  from_.end_pages();
  to_.end_pages();
}

PagesSent DirectPath::carry(const PagesOrder& order, ObjectId queue_there) {
  const auto taken = std::make_shared<std::promise<cl_int>>();
  to_.take_pages(queue_there, [taken](cl_int code) { taken->set_value(code); });
  const auto sent = from_.send_pages(order);
  const cl_int code = taken->get_future().get();
  if (sent && code == CL_SUCCESS) return *sent;
  why_lost_ = fmt::format("it doesn't get from one server to the other: OpenCL errors {} there, {} here", code,
                          sent ? CL_SUCCESS : sent.error());
  throw PathLost{why_lost_};
}

void DirectPath::copy(ObjectId queue, ObjectId buffer, Range range, Comparison how, Round round,
                      const OnCopied& on_copied) {
  const std::size_t part = round == Round::last ? kPartInStop : kPart;
  for (std::size_t done = 0; done < range.size; done += part) {
    const PagesOrder order{buffer,
                           queue,
                           {range.offset + done, std::min(part, range.size - done)},
                           static_cast<std::uint8_t>(how.kind),
                           static_cast<std::uint8_t>(how.sample.bytes),
                           static_cast<std::uint8_t>(how.sample.at),
                           round == Round::last};
    const PagesSent sent = carry(order, queue);
    on_copied({.read = sent.read,
               .sent = sent.sent,
               .zero = sent.zero,
               .never_sent = sent.never_sent,
               .sampled = sent.sampled,
               .direct = sent.sent});
  }
}

void DirectPath::forward(const Place& from, const Place& to, std::size_t size) {
  PagesOrder order{.memory = from.buffer, .queue = from.queue, .range = {from.offset, size}};
  order.to = to.buffer;
  order.to_offset = to.offset;
  carry(order, to.queue);
}

}  // namespace grus::memory
