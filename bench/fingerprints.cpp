// How fast fingerprints of pages are, and what they find: gMig's and others by the host, one thread, and the device's
// own in its memory. Then what samples save. Prints JSON.
#include <openssl/evp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "memory/fingerprint.hpp"
#include "memory/fingerprint_kernels.hpp"
#include "opencl.hpp"

namespace {

using bench::check;
using grus::memory::Kind;
using grus::memory::kPage;
using grus::memory::Round;
using grus::memory::Sample;
using grus::memory::SentPages;
using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Digest = std::array<std::uint64_t, 4>;
using PageView = std::span<const std::byte>;
using Data = std::vector<std::byte>;

constexpr std::size_t kBlock = 32;
constexpr const char* kBenchKernels = R"CLC(
kernel void fill(global ulong* to, ulong seed) { to[get_global_id(0)] = (get_global_id(0) ^ seed) * P1; }
kernel void dirty(global ulong* to, ulong one_of) {  // a word of one page of so many, scattered
  const ulong page = get_global_id(0);
  if ((uint)(page * 2654435761u) % one_of == 0) to[page * 512 + page % 512] ^= 1;
}
)CLC";

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>{Clock::now() - start}.count(); }

template <typename Call>
double median_seconds(int times, Call call) {
  std::vector<double> all;
  for (int turn = 0; turn < times; ++turn) all.push_back(call());
  std::nth_element(all.begin(), all.begin() + times / 2, all.end());
  return all[static_cast<std::size_t>(times / 2)];
}

PageView page_of(const Data& data, std::size_t page) { return PageView{data}.subspan(page * kPage, kPage); }
std::byte* at(Data& data, std::size_t page, std::size_t offset) { return data.data() + page * kPage + offset; }

Data random_data(std::size_t size) {
  std::mt19937_64 random{1};
  Data data(size);
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(data.data() + i, &word, sizeof word);
  }
  return data;
}

// What OpenSSL calls it.
class Openssl {
 public:
  explicit Openssl(const char* name) : kind_{EVP_MD_fetch(nullptr, name, nullptr), EVP_MD_free} {
    if (!kind_) throw bench::Failure{std::string{"OpenSSL has no "} + name};
  }
  Digest operator()(PageView page) const {
    Digest digest{};
    EVP_DigestInit_ex2(context_.get(), kind_.get(), nullptr);
    EVP_DigestUpdate(context_.get(), page.data(), page.size());
    EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr);
    return digest;
  }

 private:
  std::shared_ptr<EVP_MD> kind_;
  std::shared_ptr<EVP_MD_CTX> context_{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

// Of pages with one bit flipped, and of pages with two blocks swapped.
json found_by(const std::function<Digest(PageView)>& hash) {
  constexpr std::size_t kCount = 1024;
  std::mt19937 random{2};
  std::size_t flips = 0;
  std::size_t swaps = 0;
  for (std::size_t turn = 0; turn < kCount; ++turn) {
    Data page(kPage);
    for (auto& byte : page) byte = static_cast<std::byte>(random());
    Data flipped = page;
    flipped[random() % kPage] ^= std::byte{1} << random() % 8;
    const std::size_t first = random() % (kPage / kBlock);
    const std::size_t second = (first + 1 + random() % (kPage / kBlock - 1)) % (kPage / kBlock);
    Data swapped = page;
    std::swap_ranges(at(swapped, 0, first * kBlock), at(swapped, 0, (first + 1) * kBlock),
                     at(swapped, 0, second * kBlock));
    flips += hash(flipped) != hash(page);
    swaps += hash(swapped) != hash(page);
  }
  return {{"changed", kCount}, {"found_flipped", flips}, {"found_swapped", swaps}};
}

json host_row(const char* name, const Data& data, const std::function<Digest(PageView)>& hash, int times) {
  const std::size_t pages = data.size() / kPage;
  Digest all{};
  const double seconds = median_seconds(times, [&] {
    const auto start = Clock::now();
    for (std::size_t page = 0; page < pages; ++page) {
      const Digest digest = hash(page_of(data, page));
      for (std::size_t i = 0; i < all.size(); ++i) all[i] ^= digest[i];
    }
    return seconds_since(start);
  });
  if (all == Digest{}) throw bench::Failure{"all fingerprints are nothing"};  // and none of them was left out
  json row = {{"table", "fingerprints"},
              {"kind", name},
              {"by", "host"},
              {"MiB", data.size() >> 20},
              {"ns_per_page", 1e9 * seconds / static_cast<double>(pages)},
              {"GB_per_s", static_cast<double>(data.size()) / 1e9 / seconds}};
  row.update(found_by(hash));
  return row;
}

// The stop of gMig's workload, in its shares: 18.9% new pages; 37.8% changed where one byte at the head tells; 4.8%
// changed elsewhere; the rest unchanged.
json sampling_row(Kind kind, const char* name, Sample sample, const char* place, const Data& before, int times) {
  const std::size_t pages = before.size() / kPage;
  SentPages sent{before.size(), {kind, sample}};
  Data now = before;
  std::mt19937 random{3};
  for (std::size_t page = 0; page < pages; ++page) {
    const unsigned share = random() % 1000;
    if (share < 189) continue;  // never sent
    sent.note(page, page_of(before, page), Round::another_follows);
    const std::size_t changed = share < 567 ? 0 : share < 615 ? 8 + random() % (kPage - 512) : kPage;
    for (std::size_t i = changed; i < std::min(changed + 256, kPage); ++i)
      *at(now, page, i) = static_cast<std::byte>(random());
  }
  std::array<std::size_t, 4> found{};
  const double seconds = median_seconds(times, [&] {
    SentPages again = sent;
    found = {};
    const auto start = Clock::now();
    for (std::size_t page = 0; page < pages; ++page)
      ++found[static_cast<std::size_t>(again.note(page, page_of(now, page), Round::last))];
    return seconds_since(start);
  });
  const auto share = [&](SentPages::Found what) {
    return static_cast<double>(found[static_cast<std::size_t>(what)]) / static_cast<double>(pages);
  };
  return {{"table", "sampling"},
          {"kind", name},
          {"bytes", sample.bytes},
          {"at", place},
          {"ns_per_page", 1e9 * seconds / static_cast<double>(pages)},
          {"never_sent", share(SentPages::Found::never_sent)},
          {"unchanged", share(SentPages::Found::unchanged)},
          {"sampled", share(SentPages::Found::other_sample)},
          {"fingerprinted", share(SentPages::Found::other_fingerprint)}};
}

// The device's kernel, over buffers in its memory, timed by the device.
class InPlace {
 public:
  InPlace(const bench::Choice& choice, std::size_t bytes) : device_{choice} {
    device_.build((std::string{grus::memory::kFingerprintKernels} + kBenchKernels).c_str());
    cl_int code = CL_SUCCESS;
    queue_.reset(clCreateCommandQueue(device_.context(), device_.id(), CL_QUEUE_PROFILING_ENABLE, &code));
    check(code, "clCreateCommandQueue");
    cl_ulong most = 0;
    check(clGetDeviceInfo(device_.id(), CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, nullptr), "clGetDeviceInfo");
    const std::size_t size = std::min({bytes, static_cast<std::size_t>(most), std::size_t{1} << 30}) / kPage * kPage;
    pages_ = size / kPage;
    const bench::Kernel fill = device_.kernel("fill");
    for (std::size_t done = 0; done + size <= bytes; done += size) {
      Part& part = parts_.emplace_back(device_.buffer(size), device_.buffer(pages_ * 16),
                                       device_.buffer((1 + pages_) * sizeof(cl_uint)));
      launch(fill.get(), {part.memory.get()}, done, size / sizeof(cl_ulong));
      clear(part.sent.get(), pages_ * 16);
    }
    if (parts_.empty()) throw bench::Failure{"the device has no room"};
  }

  std::string name() const { return device_.text(CL_DEVICE_NAME); }

  void dirty(cl_ulong one_of) {
    const bench::Kernel kernel = device_.kernel("dirty");
    for (const Part& part : parts_) launch(kernel.get(), {part.memory.get()}, one_of, pages_);
  }

  // How many pages changed, and how long it took: from the first kernel's start to the last one's end.
  std::pair<std::size_t, double> look() {
    for (const Part& part : parts_) clear(part.changed.get(), sizeof(cl_uint));
    check(clFinish(queue_.get()), "clFinish");
    const bench::Kernel kernel = device_.kernel("fingerprint");
    std::vector<bench::Event> events;
    for (const Part& part : parts_) {
      const cl_ulong first = 0;
      const cl_mem memory = part.memory.get();
      const cl_mem sent = part.sent.get();
      const cl_mem changed = part.changed.get();
      check(clSetKernelArg(kernel.get(), 0, sizeof memory, &memory), "clSetKernelArg");
      check(clSetKernelArg(kernel.get(), 1, sizeof first, &first), "clSetKernelArg");
      check(clSetKernelArg(kernel.get(), 2, sizeof sent, &sent), "clSetKernelArg");
      check(clSetKernelArg(kernel.get(), 3, sizeof first, &first), "clSetKernelArg");
      check(clSetKernelArg(kernel.get(), 4, sizeof changed, &changed), "clSetKernelArg");
      const std::size_t local = 32;
      const std::size_t global = pages_ * local;
      cl_event event = nullptr;
      check(clEnqueueNDRangeKernel(queue_.get(), kernel.get(), 1, nullptr, &global, &local, 0, nullptr, &event),
            "clEnqueueNDRangeKernel");
      events.emplace_back(event);
    }
    check(clFinish(queue_.get()), "clFinish");
    std::size_t found = 0;
    for (const Part& part : parts_) {
      cl_uint count = 0;
      device_.read(part.changed.get(), 0, sizeof count, &count);
      found += count;
    }
    const auto time = [](const bench::Event& event, cl_profiling_info what) {
      cl_ulong value = 0;
      check(clGetEventProfilingInfo(event.get(), what, sizeof value, &value, nullptr), "clGetEventProfilingInfo");
      return value;
    };
    const cl_ulong start = time(events.front(), CL_PROFILING_COMMAND_START);
    return {found, 1e-9 * static_cast<double>(time(events.back(), CL_PROFILING_COMMAND_END) - start)};
  }

  json row(const char* what, std::size_t found, double seconds) const {
    const double pages = static_cast<double>(parts_.size() * pages_);
    return {{"table", "fingerprints"},
            {"kind", what},
            {"by", "device"},
            {"MiB", parts_.size() * pages_ * kPage >> 20},
            {"ns_per_page", 1e9 * seconds / pages},
            {"GB_per_s", pages * kPage / 1e9 / seconds},
            {"pages_changed", found}};
  }

 private:
  struct Part {
    bench::Buffer memory;
    bench::Buffer sent;
    bench::Buffer changed;
  };
  void launch(cl_kernel kernel, const std::vector<cl_mem>& memories, cl_ulong value, std::size_t items) {
    cl_uint index = 0;
    for (const cl_mem memory : memories) check(clSetKernelArg(kernel, index++, sizeof memory, &memory), "argument");
    check(clSetKernelArg(kernel, index, sizeof value, &value), "clSetKernelArg");
    check(clEnqueueNDRangeKernel(queue_.get(), kernel, 1, nullptr, &items, nullptr, 0, nullptr, nullptr), "launch");
  }
  void clear(cl_mem memory, std::size_t size) {
    const cl_uint zero = 0;
    check(clEnqueueFillBuffer(queue_.get(), memory, &zero, sizeof zero, 0, size, 0, nullptr, nullptr),
          "clEnqueueFillBuffer");
  }

  bench::Device device_;
  bench::Queue queue_;
  std::size_t pages_ = 0;  // of each part
  std::vector<Part> parts_;
};

void measure_host(json& rows, std::size_t bytes, int times) {
  const auto ours = [](Kind kind) { return [kind](PageView page) { return grus::memory::fingerprint(page, kind); }; };
  constexpr std::size_t kInCache = std::size_t{1} << 20;
  const Data data = random_data(bytes);
  for (const Data& from : {random_data(kInCache), data}) {
    rows.push_back(host_row("xor256", from, ours(Kind::xor256), times));
    rows.push_back(host_row("xxh3", from, ours(Kind::xxh3), times));
    rows.push_back(host_row("MD5", from, Openssl{"MD5"}, times));
    rows.push_back(host_row("SHA-1", from, Openssl{"SHA1"}, times));
  }
  for (const auto& [kind, name] : {std::pair{Kind::xor256, "xor256"}, {Kind::xxh3, "xxh3"}}) {
    rows.push_back(sampling_row(kind, name, {}, "", data, times));
    for (const auto& [place, where] :
         {std::pair{"head", Sample::At::head}, {"tail", Sample::At::tail}, {"uniform", Sample::At::uniform}}) {
      for (const std::size_t sampled : {1, 2, 4})
        rows.push_back(sampling_row(kind, name, {sampled, where}, place, data, times));
    }
  }
}

std::string measure_device(json& rows, const bench::Choice& choice, std::size_t bytes, int times) {
  InPlace device{choice, bytes};
  const auto [new_pages, first] = device.look();
  rows.push_back(device.row("device, all pages new", new_pages, first));
  std::size_t found = 0;
  const auto look = [&] {
    const auto [changed, seconds] = device.look();
    found = changed;
    return seconds;
  };
  const double unchanged = median_seconds(times, look);
  rows.push_back(device.row("device, nothing changed", found, unchanged));
  const double scattered = median_seconds(times, [&] {
    device.dirty(100);
    return look();
  });
  rows.push_back(device.row("device, 1% changed, scattered", found, scattered));
  return device.name();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"How fast fingerprints of pages are, by the host and by the device; prints JSON"};
  bench::Choice choice;
  std::size_t host_mib = 256;
  std::size_t device_mib = 1024;
  int times = 7;
  app.add_option("--platform", choice.platform, "part of the platform's name");
  app.add_option("--device", choice.device, "part of the device's name");
  app.add_option("--mib", host_mib, "of host memory")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--device-mib", device_mib, "of the device's memory")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--times", times, "medians of so many")->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    json rows = json::array();
    measure_host(rows, host_mib << 20, times);
    const std::string name = measure_device(rows, choice, device_mib << 20, times);
    std::printf("%s\n", json{{"device", name}, {"rows", rows}}.dump(1).c_str());
  } catch (const bench::Failure& failure) {
    std::fprintf(stderr, "fingerprints: %s\n", failure.what());
    return 1;
  }
}
