#include "server/leases.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/thread.hpp"

namespace grus::server {
namespace {

using json = nlohmann::ordered_json;
using Descriptor = channel::Descriptor;

// Sessions have others: none is 0.
constexpr std::uint64_t kWake = 0;
constexpr std::uint64_t kTimer = 1;
constexpr int kMostEvents = 64;

void ring(const Descriptor& bell) {
  const std::uint64_t one = 1;
  (void)!write(bell.get(), &one, sizeof one);
}

void silence(const Descriptor& bell) {
  std::uint64_t count = 0;
  (void)!read(bell.get(), &count, sizeof count);
}

double seconds(Scheduler::Duration duration) { return static_cast<double>(duration.count()) / 1e9; }

json to_json(const Scheduler::Use& use) {
  return {{"device_seconds", seconds(use.had)},
          {"waited_seconds", seconds(use.waited)},
          {"longest_wait_seconds", seconds(use.longest_wait)}};
}

}  // namespace

Descriptor Leases::new_bell() { return Descriptor{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}; }

Leases::Leases(std::chrono::seconds time_limit)
    : events_{epoll_create1(EPOLL_CLOEXEC)},
      timer_{timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)},
      wake_{new_bell()},
      greedy_bell_{new_bell()},
      scheduler_{time_limit} {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWake}};
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  event.data.u64 = kTimer;
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, timer_.get(), &event);
  thread_ = start_thread("grus-leases", [this] { run(); });
}

Leases::~Leases() {
  {
    const std::lock_guard lock{mutex_};
    is_over_ = true;
  }
  ring(wake_);
  thread_.join();
}

void Leases::add(SessionId session, const std::string& tenant, SharedCounters page, Descriptor bell) {
  const std::lock_guard lock{mutex_};
  scheduler_.add(session, tenant);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = session}};
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, bell.get(), &event);
  workers_.emplace(session, Worker{std::move(page), std::move(bell)});
}

void Leases::remove(SessionId session) {
  {
    const std::lock_guard lock{mutex_};
    const auto worker = workers_.find(session);
    if (worker == workers_.end()) return;
    epoll_ctl(events_.get(), EPOLL_CTL_DEL, worker->second.bell.get(), nullptr);
    workers_.erase(worker);
    scheduler_.remove(session, Clock::now());
  }
  ring(wake_);
}

void Leases::set_terms(const std::string& tenant, const TenantTerms& terms) {
  {
    const std::lock_guard lock{mutex_};
    scheduler_.set_terms(tenant, terms);
  }
  ring(wake_);
}

TenantTerms Leases::terms(const std::string& tenant) {
  const std::lock_guard lock{mutex_};
  return scheduler_.terms(tenant);
}

void Leases::forget_tenant(const std::string& tenant) {
  const std::lock_guard lock{mutex_};
  scheduler_.forget(tenant);
}

std::vector<Leases::SessionId> Leases::take_greedy() {
  const std::lock_guard lock{mutex_};
  silence(greedy_bell_);
  return std::exchange(greedy_, {});
}

json Leases::session_json(SessionId session) {
  const std::lock_guard lock{mutex_};
  return to_json(scheduler_.use_of_session(session, Clock::now()));
}

json Leases::tenants_json() {
  const std::lock_guard lock{mutex_};
  json all = json::array();
  for (const std::string& name : scheduler_.tenants()) {
    const TenantTerms& terms = scheduler_.terms(name);
    json tenant = {{"tenant", name},
                   {"sessions", scheduler_.sessions_of(name)},
                   {"weight", terms.weight},
                   {"cap_percent", terms.cap}};
    tenant.update(to_json(scheduler_.use_of_tenant(name, Clock::now())));
    all.push_back(std::move(tenant));
  }
  return all;
}

void Leases::run() {
  std::array<epoll_event, kMostEvents> ready;
  for (;;) {
    const int count = epoll_wait(events_.get(), ready.data(), kMostEvents, -1);
    const std::lock_guard lock{mutex_};
    if (is_over_) return;
    for (int index = 0; index < count; ++index) {
      const std::uint64_t what = ready[static_cast<std::size_t>(index)].data.u64;
      if (what == kWake) {
        silence(wake_);
      } else if (what == kTimer) {
        silence(timer_);
      } else if (const auto worker = workers_.find(what); worker != workers_.end()) {
        silence(worker->second.bell);
        look_at(what, worker->second);
      }
    }
    carry_out();
    set_timer();
  }
}

// It could have written anything there.
void Leases::look_at(SessionId session, Worker& worker) {
  const auto now = Clock::now();
  for (std::uint32_t device = 0; device < LeasePage::kDevices; ++device) {
    const LeasePage::Device& page = worker.page.leases().devices[device];
    Held& held = worker.devices[device];
    if (held.is_given && page.returned.load() == held.number) {
      held.is_given = false;
      const std::uint64_t idle = page.idle.load(std::memory_order_relaxed);
      scheduler_.give_back(session, device, now, Scheduler::Duration{std::min<std::uint64_t>(idle, 1'000'000'000)});
    }
    if (!held.is_given && !held.is_asked_for && page.asked.load() == held.number + 1) {
      held.is_asked_for = true;
      scheduler_.ask(session, device, now);
    }
  }
}

void Leases::carry_out() {
  using What = Scheduler::Action::What;
  for (const auto& [what, session, device] : scheduler_.decide(Clock::now())) {
    Worker& worker = workers_.at(session);
    LeasePage::Device& page = worker.page.leases().devices[device];
    Held& held = worker.devices[device];
    switch (what) {
      case What::grant:
        held.is_asked_for = false;
        held.is_given = true;
        page.wish.store(Wish::nothing);
        change_and_wake(page.granted, ++held.number);
        break;
      case What::keep:
        page.wish.store(Wish::nothing);
        break;
      case What::ask_when_idle:
        change_and_wake(page.wish, Wish::when_idle);
        break;
      case What::ask_now:
        change_and_wake(page.wish, Wish::now);
        break;
      case What::end:
        greedy_.push_back(session);
        ring(greedy_bell_);
        break;
    }
  }
}

void Leases::set_timer() const {
  itimerspec when{};
  const auto now = Clock::now();
  if (const auto next = scheduler_.next(now)) {
    const auto left = std::max<std::int64_t>(Scheduler::Duration{*next - now}.count(), 1000);
    when.it_value = {left / 1'000'000'000, left % 1'000'000'000};
  }
  timerfd_settime(timer_.get(), 0, &when, nullptr);
}

}  // namespace grus::server
