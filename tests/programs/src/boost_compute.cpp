// Boost.Compute algorithms and a custom kernel, each checked against the standard library.
// usage: boost_compute [COUNT]
// Prints one line per algorithm with a checksum of its result.
#define CL_TARGET_OPENCL_VERSION 120
#include <algorithm>
#include <boost/compute/algorithm/accumulate.hpp>
#include <boost/compute/algorithm/copy.hpp>
#include <boost/compute/algorithm/count_if.hpp>
#include <boost/compute/algorithm/exclusive_scan.hpp>
#include <boost/compute/algorithm/iota.hpp>
#include <boost/compute/algorithm/max_element.hpp>
#include <boost/compute/algorithm/reduce.hpp>
#include <boost/compute/algorithm/sort.hpp>
#include <boost/compute/algorithm/sort_by_key.hpp>
#include <boost/compute/algorithm/transform.hpp>
#include <boost/compute/container/vector.hpp>
#include <boost/compute/functional/math.hpp>
#include <boost/compute/lambda.hpp>
#include <boost/compute/system.hpp>
#include <boost/compute/utility/source.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <vector>

namespace compute = boost::compute;

namespace {

int wrong = 0;

void report(const char* name, const std::vector<int>& ours, const std::vector<int>& expected) {
  double checksum = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) checksum += ours[i] * static_cast<double>(1 + i % 19);
  const bool ok = ours == expected;
  wrong += !ok;
  std::printf("%s checksum %.12g%s\n", name, checksum, ok ? "" : " WRONG");
}

std::vector<int> to_host(const compute::vector<int>& values, compute::command_queue& queue) {
  std::vector<int> host(values.size());
  compute::copy(values.begin(), values.end(), host.begin(), queue);
  return host;
}

std::vector<int> test_values(std::size_t count) {
  std::vector<int> values(count);
  unsigned state = 12345;
  for (auto& value : values) value = static_cast<int>((state = state * 1664525u + 1013904223u) >> 8) - (1 << 23);
  return values;
}

void sorts(const std::vector<int>& host, const compute::context& context, compute::command_queue& queue) {
  compute::vector<int> values(host.begin(), host.end(), queue);
  compute::sort(values.begin(), values.end(), queue);
  auto sorted = host;
  std::sort(sorted.begin(), sorted.end());
  report("sort", to_host(values, queue), sorted);

  compute::vector<int> keys(host.begin(), host.end(), queue), order(host.size(), context);
  compute::iota(order.begin(), order.end(), 0, queue);
  compute::sort_by_key(keys.begin(), keys.end(), order.begin(), queue);
  std::vector<int> by_key;
  for (const int index : to_host(order, queue)) by_key.push_back(host[index]);
  report("sort_by_key", by_key, sorted);
}

void reductions(const std::vector<int>& host, const compute::context& context, compute::command_queue& queue) {
  using compute::lambda::_1;
  compute::vector<int> values(host.begin(), host.end(), queue), scanned(host.size(), context);
  int sum = 0;
  compute::reduce(values.begin(), values.end(), &sum, compute::plus<int>(), queue);
  const int expected_sum = std::accumulate(host.begin(), host.end(), 0);
  const int maximum = *std::max_element(host.begin(), host.end());
  report("reduce", {sum}, {expected_sum});
  report("accumulate", {compute::accumulate(values.begin(), values.end(), 0, queue)}, {expected_sum});
  report("max_element", {compute::max_element(values.begin(), values.end(), queue).read(queue)}, {maximum});
  const auto positive = compute::count_if(values.begin(), values.end(), _1 > 0, queue);
  report("count_if", {static_cast<int>(positive)},
         {static_cast<int>(std::count_if(host.begin(), host.end(), [](int v) { return v > 0; }))});
  compute::exclusive_scan(values.begin(), values.end(), scanned.begin(), queue);
  std::vector<int> expected(host.size());
  std::exclusive_scan(host.begin(), host.end(), expected.begin(), 0);
  report("exclusive_scan", to_host(scanned, queue), expected);
}

BOOST_COMPUTE_FUNCTION(int, twice_plus_one, (int x), { return 2 * x + 1; });

void own_code(const std::vector<int>& host, const compute::context& context, compute::command_queue& queue) {
  compute::vector<int> values(host.begin(), host.end(), queue), output(host.size(), context);
  compute::transform(values.begin(), values.end(), output.begin(), twice_plus_one, queue);
  std::vector<int> expected(host.size());
  std::transform(host.begin(), host.end(), expected.begin(), [](int v) { return 2 * v + 1; });
  report("transform", to_host(output, queue), expected);

  const char source[] = BOOST_COMPUTE_STRINGIZE_SOURCE(
      __kernel void neighbours(__global const int* in, __global int* out, const int count) {
        const int i = get_global_id(0);
        out[i] = in[i] ^ in[(i + 1) % count];
      });
  auto program = compute::program::build_with_source(source, context);
  auto kernel = program.create_kernel("neighbours");
  kernel.set_args(values.get_buffer(), output.get_buffer(), static_cast<int>(host.size()));
  queue.enqueue_1d_range_kernel(kernel, 0, host.size(), 0);
  for (std::size_t i = 0; i < host.size(); ++i) expected[i] = host[i] ^ host[(i + 1) % host.size()];
  report("own kernel", to_host(output, queue), expected);
}

}  // namespace

int main(int argc, char** argv) {
  const auto host = test_values(argc > 1 ? std::atoi(argv[1]) : 10000);
  try {
    const auto device = compute::system::default_device();
    const compute::context context(device);
    compute::command_queue queue(context, device);
    std::printf("device %s\n", device.name().c_str());
    sorts(host, context, queue);
    reductions(host, context, queue);
    own_code(host, context, queue);
    queue.finish();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return wrong ? 1 : 0;
}
