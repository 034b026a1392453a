#include "channel/relay.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "channel/handshake.hpp"
#include "channel/pass.hpp"
#include "channel/stream.hpp"

namespace grus::channel {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kBegins = 0x9d7f3ac15e62b804;
constexpr std::size_t kMostData = 64 * 1024;                // in a frame
constexpr std::size_t kWindow = std::size_t{1} << 20;       // that a connection may have under way in each direction
constexpr std::size_t kMostWaiting = std::size_t{1} << 18;  // for the port; connections are read from below that
constexpr std::size_t kMostAnswers = std::size_t{1} << 22;
constexpr std::size_t kMostConnections = 64;
constexpr auto kBetweenAttempts = 200ms;

struct Frame {
  // slice: what the host gave to a connection; held: what a program of the guest still has of one that is over
  enum class Kind : std::uint32_t { hello, hello_too, open, data, room, close, slice, held };
  std::uint64_t begins = kBegins;
  Kind kind = Kind::hello;
  std::uint32_t connection = 0;
  std::uint64_t size = 0;  // of the data that follows; of room: the bytes that were taken; of a slice: its number
};

// What is still to be written somewhere, or to be understood.
class Waiting {
 public:
  std::byte* data() { return bytes_.data() + start_; }
  std::size_t size() const { return bytes_.size() - start_; }
  void add(const void* data, std::size_t size) {
    const auto* const from = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), from, from + size);
  }
  void drop(std::size_t size) {
    start_ += size;
    if (start_ < bytes_.size() / 2) return;
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(start_));
    start_ = 0;
  }
  void clear() { drop(size()); }

 private:
  std::vector<std::byte> bytes_;
  std::size_t start_ = 0;
};

// Of pages, so that it fits.
std::uint64_t number_of(const Slice& slice) { return slice.offset / 4096 << 32U | slice.size / 4096; }
Slice slice_of(std::uint64_t number) { return {(number >> 32U) * 4096, (number & 0xffffffffU) * 4096}; }

bool would_wait() { return errno == EAGAIN || errno == EINTR; }

struct Connection {
  Descriptor socket;
  Waiting in{};                          // from the port
  std::size_t room = kWindow;            // at the other side
  std::size_t taken = 0;                 // by the socket, and not said yet
  bool ends = false;                     // once all that came is written
  bool has_begun = true;                 // what it is for is known, and has been handed on
  std::optional<std::uint64_t> slice{};  // in the guest: its number
};

class Relay {
 public:
  explicit Relay(const RelayOptions& options) : options_{options} {
    sigset_t handled;
    sigemptyset(&handled);
    for (const int signal : {SIGTERM, SIGINT}) sigaddset(&handled, signal);
    sigprocmask(SIG_BLOCK, &handled, nullptr);
    signals_ = Descriptor{signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)};
    if (is_guest()) listening_ = listen_at(options.address);
    if (!options.area.empty()) area_.emplace(options.area, options.slice);
  }
  ~Relay() {
    if (is_guest()) unlink(options_.address.path.c_str());
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  void run() {
    for (;;) {
      if (port_.get() < 0 && Clock::now() >= next_attempt_) open_port();
      std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}, {port_.get(), port_wishes(), 0}};
      const bool accepts = is_joined_ && out_.size() < kMostWaiting && connections_.size() < kMostConnections;
      polled.push_back({accepts ? listening_.get() : -1, POLLIN, 0});
      std::vector<std::uint32_t> ids;
      for (const auto& [id, connection] : connections_) {
        polled.push_back({connection.socket.get(), wishes_of(connection), 0});
        ids.push_back(id);
      }
      const std::vector<int> signs = area_ ? area_->signs() : std::vector<int>{};
      for (const int sign : signs) polled.push_back({sign, 0, 0});
      const bool waits_for_port = port_.get() < 0;
      poll(polled.data(), polled.size(), waits_for_port ? static_cast<int>(kBetweenAttempts / 1ms) : -1);
      if (polled[0].revents != 0) return;
      if (polled[2].revents != 0) accept_one();
      for (std::size_t index = 0; index < ids.size(); ++index) {
        if (polled[index + 3].revents != 0) serve(ids[index]);
      }
      if (polled[1].revents != 0) use_port(polled[1].revents);
      if (area_) area_->look_at_signs();
    }
  }

 private:
  bool is_guest() const { return options_.side == RelayOptions::Side::guest; }

  // Who asks and asks and takes no answer isn't listened to.
  short port_wishes() const {
    return static_cast<short>((out_.size() < kMostAnswers ? POLLIN : 0) | (out_.size() != 0 ? POLLOUT : 0));
  }
  short wishes_of(const Connection& connection) const {
    const bool takes = connection.room != 0 && out_.size() < kMostWaiting && (!connection.ends || connection.slice);
    const bool has_some = connection.in.size() >= (connection.has_begun ? 1 : sizeof(Preamble));
    return static_cast<short>((takes ? POLLIN : 0) | (has_some ? POLLOUT : 0));
  }

  void open_port() {
    next_attempt_ = Clock::now() + kBetweenAttempts;
    try {
      port_ = options_.port.starts_with("unix:")
                  ? connect_to(Address::parse(options_.port))
                  : Descriptor{open(options_.port.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK)};
    } catch (const Lost&) {  // QEMU isn't there yet
    }
    if (port_.get() < 0) return miss_port();
    fcntl(port_.get(), F_SETFL, O_NONBLOCK);
    // The other side may be in the middle of a frame of a relay that was here before.
    const std::vector<std::byte> rest(kMostData);
    out_.add(rest.data(), rest.size());
    send(Frame{.kind = Frame::Kind::hello});
  }

  // Said once, until the other side is there again.
  void miss_port() {
    if (!is_missed_) log::warn("relay", "{}: nobody is at the other side; waiting", options_.port);
    is_missed_ = true;
  }

  void lose_port() {
    miss_port();
    port_.reset();
    begin_again();
    in_.clear();
    out_.clear();
    is_joined_ = false;
  }

  // A program that has a slice has it until it says so, whoever is at the other side.
  void begin_again() {
    const auto lost =
        std::count_if(connections_.begin(), connections_.end(), [](const auto& entry) { return !entry.second.ends; });
    if (lost != 0) log::warn("relay", "{} connections end, for the other side began again", lost);
    std::erase_if(connections_, [](const auto& entry) { return !entry.second.slice; });
    for (auto& [id, connection] : connections_) {
      connection.in.clear();
      wait_for_program(connection);
    }
    if (area_) area_->are_all_let_go();
  }

  // It is told that the connection is over, and closes its end when it has no use for its slice any more.
  static void wait_for_program(Connection& connection) {
    connection.ends = true;
    connection.room = kWindow;
    shutdown(connection.socket.get(), SHUT_WR);
  }

  void tell_held() {
    for (const auto& [id, connection] : connections_) {
      if (connection.ends && connection.slice)
        send({.kind = Frame::Kind::held, .connection = id, .size = *connection.slice});
    }
  }

  void send(const Frame& frame) { out_.add(&frame, sizeof frame); }

  void accept_one() {
    Descriptor socket = accept_from(listening_);
    if (socket.get() < 0) return;
    const std::uint32_t id = ++last_;
    connections_.emplace(id, Connection{std::move(socket)});
    send({.kind = Frame::Kind::open, .connection = id});
  }

  // At the host, for one that the guest has.
  void connect_one(std::uint32_t id) {
    Descriptor socket;
    try {
      if (connections_.size() < kMostConnections) socket = connect_to(options_.address);
    } catch (const Lost& lost) {
      log::warn("relay", "{}", lost.what());
    }
    if (socket.get() < 0) return send({.kind = Frame::Kind::close, .connection = id});
    connections_.insert_or_assign(id, Connection{.socket = std::move(socket), .has_begun = false});
  }

  // At the host: what it is for goes to the server, with a slice if it wants one and there is one. Only this relay can
  // say that it has one. False if the server is gone.
  bool begin(std::uint32_t id, Connection& connection) {
    AreaPreamble first;
    std::memcpy(&first.preamble, connection.in.data(), sizeof first.preamble);
    connection.in.drop(sizeof first.preamble);
    connection.taken += sizeof first.preamble;
    connection.has_begun = true;
    const bool wants = first.preamble.purpose == Preamble::Purpose::area_session;
    const auto taken = wants && area_ ? area_->take(id) : std::nullopt;
    if (wants && !taken) {
      log::warn("relay", "a program of the guest gets no shared memory: {}",
                area_ ? "all of the area is in use" : "this relay has no --area");
      first.preamble.purpose = Preamble::Purpose::bare_session;
    }
    const int number = connection.socket.get();
    if (!taken) return pass(number, first.preamble, {});
    first.slice = taken->slice;
    send({.kind = Frame::Kind::slice, .connection = id, .size = number_of(first.slice)});
    const int descriptors[] = {area_->file(), taken->sign.get()};
    return pass(number, first, descriptors);
  }

  void end(std::uint32_t id) {
    send({.kind = Frame::Kind::close, .connection = id});
    connections_.erase(id);
  }

  void serve(std::uint32_t id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    if (!connection.has_begun && connection.in.size() >= sizeof(Preamble) && !begin(id, connection)) return end(id);
    if (connection.has_begun && connection.in.size() != 0) {
      const ssize_t sent =
          ::send(connection.socket.get(), connection.in.data(), connection.in.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && !would_wait()) return end(id);
      connection.in.drop(static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
      connection.taken += static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
      if (connection.taken >= kWindow / 4)
        send({.kind = Frame::Kind::room, .connection = id, .size = std::exchange(connection.taken, 0)});
    }
    if (connection.ends && !connection.slice) {
      if (connection.in.size() == 0) connections_.erase(found);
      return;
    }
    if (connection.ends && connection.in.size() == 0) wait_for_program(connection);
    if (connection.room == 0 || out_.size() >= kMostWaiting) return;
    std::byte data[kMostData];
    const ssize_t received = recv(connection.socket.get(), data, std::min(connection.room, sizeof data), MSG_DONTWAIT);
    if (received < 0 && would_wait()) return;
    if (received <= 0) return end(id);
    if (connection.ends) return;  // nobody is left to hear it
    const auto size = static_cast<std::size_t>(received);
    connection.room -= size;
    send({.kind = Frame::Kind::data, .connection = id, .size = size});
    out_.add(data, size);
  }

  void use_port(short ready) {
    if (ready & POLLIN) {
      std::byte data[4 * kMostData];
      const ssize_t received = read(port_.get(), data, sizeof data);
      if (received == 0 || (received < 0 && !would_wait())) return lose_port();
      in_.add(data, static_cast<std::size_t>(std::max<ssize_t>(received, 0)));
      take_frames();
    } else if (ready & (POLLHUP | POLLERR)) {
      return lose_port();
    }
    if (out_.size() == 0) return;
    const ssize_t sent = write(port_.get(), out_.data(), out_.size());
    if (sent < 0 && !would_wait()) return lose_port();
    out_.drop(static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
  }

  // Whatever no frame begins with is left over from a relay that has ended.
  void take_frames() {
    while (in_.size() >= sizeof(Frame)) {
      Frame frame;
      std::memcpy(&frame, in_.data(), sizeof frame);
      if (frame.begins != kBegins || (frame.kind == Frame::Kind::data && frame.size > kMostData)) {
        const auto* const next = static_cast<const std::byte*>(
            std::memchr(in_.data() + 1, static_cast<int>(kBegins & 0xff), in_.size() - 1));
        in_.drop(next ? static_cast<std::size_t>(next - in_.data()) : in_.size());
        continue;
      }
      const std::size_t data = frame.kind == Frame::Kind::data ? frame.size : 0;
      if (in_.size() < sizeof frame + data) return;
      take(frame, in_.data() + sizeof frame);
      in_.drop(sizeof frame + data);
    }
  }

  // Whatever the other side says, it may be an enemy.
  void take(const Frame& frame, const std::byte* data) {
    using Kind = Frame::Kind;
    if (frame.kind == Kind::hello || frame.kind == Kind::hello_too) {
      if (frame.kind == Kind::hello) {
        begin_again();
        send({.kind = Kind::hello_too});
      }
      tell_held();
      is_joined_ = true;
      is_missed_ = false;
      return;
    }
    if (!is_joined_) return;  // it was meant for a relay that was here before
    if (frame.kind == Kind::open && !is_guest()) return connect_one(frame.connection);
    if (frame.kind == Kind::held && area_) return area_->note_held(frame.connection, slice_of(frame.size));
    if (frame.kind == Kind::close && area_) area_->is_let_go(frame.connection);
    const auto found = connections_.find(frame.connection);
    if (found == connections_.end()) return;  // it ended here first
    Connection& connection = found->second;
    if (frame.kind == Kind::close) {
      connection.ends = true;
      if (connection.in.size() != 0) return;
      if (connection.slice) {
        wait_for_program(connection);
      } else {
        connections_.erase(found);
      }
    } else if (frame.kind == Kind::slice && is_guest()) {
      connection.slice = frame.size;
    } else if (frame.kind == Kind::room) {
      connection.room = std::min(kWindow, connection.room + std::min<std::size_t>(frame.size, kWindow));
    } else if (frame.kind == Kind::data && connection.in.size() + frame.size <= kWindow) {
      connection.in.add(data, frame.size);
    } else {
      log::warn("relay", "the other side doesn't keep to what is agreed; a connection ends");
      end(frame.connection);
    }
  }

  const RelayOptions& options_;
  Descriptor signals_;
  Descriptor listening_;
  Descriptor port_;
  std::optional<Area> area_;
  Clock::time_point next_attempt_{};  // to open it
  bool is_missed_ = false;            // which was said
  bool is_joined_ = false;            // the other side is there
  Waiting in_;
  Waiting out_;
  std::map<std::uint32_t, Connection> connections_;
  std::uint32_t last_ = 0;
};

}  // namespace

void relay(const RelayOptions& options) { Relay{options}.run(); }

}  // namespace grus::channel
