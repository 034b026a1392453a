// What is written to the wire comes back the same, and what was cut off or made up is noticed.
#include <gtest/gtest.h>

#include "channel/address.hpp"
#include "channel/fields.hpp"
#include "channel/handshake.hpp"

namespace grus {
namespace {

template <typename T>
Bytes written(const T& value) {
  Bytes bytes;
  wire::Writer{bytes}(value);
  return bytes;
}

template <typename T>
T read_back(const Bytes& bytes) {
  wire::Reader reader{bytes};
  T value;
  reader(value);
  reader.expect_end();
  return value;
}

BuildOrder some_order() {
  auto header = std::make_shared<Recipe>();
  header->source = "#define N 3";
  auto recipe = std::make_shared<Recipe>();
  recipe->source = "kernel void f() {}";
  recipe->specialization_constants[7] = to_bytes(42);
  recipe->vendor_binaries = {Bytes(3), Bytes{}};
  recipe->headers = {{"n.h", header}};
  recipe->inputs = {header, header};
  recipe->fallback = header;
  BuildOrder order;
  order.program = ObjectId{1, 2};
  order.context = ObjectId{3, 4};
  order.program_devices = {ObjectId{5, 6}};
  order.step = BuildOrder::Step::link;
  order.options = "-DX";
  order.recipe = recipe;
  order.inputs = {ObjectId{7, 8}, ObjectId{9, 10}};
  return order;
}

TEST(Wire, BringsABuildOrderBack) {
  const auto order = read_back<BuildOrder>(written(some_order()));
  EXPECT_EQ(order.program, (ObjectId{1, 2}));
  EXPECT_EQ(order.step, BuildOrder::Step::link);
  EXPECT_EQ(order.inputs.size(), 2U);
  EXPECT_EQ(order.recipe->source, "kernel void f() {}");
  EXPECT_EQ(order.recipe->specialization_constants.at(7), to_bytes(42));
  EXPECT_EQ(order.recipe->headers.at(0).name, "n.h");
  EXPECT_EQ(order.recipe->fallback->source, "#define N 3");
  EXPECT_EQ(written(order), written(some_order()));
}

TEST(Wire, NoticesWhatIsCutOff) {
  const Bytes whole = written(some_order());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes part{whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)};
    EXPECT_THROW(read_back<BuildOrder>(part), wire::BadMessage) << size << " bytes";
  }
}

TEST(Wire, NoticesWhatIsTooLong) {
  Bytes bytes = written(some_order());
  bytes.push_back(std::byte{0});
  EXPECT_THROW(read_back<BuildOrder>(bytes), wire::BadMessage);
}

TEST(Wire, AllocatesNothingForAListThatCantBeThere) {
  EXPECT_THROW(read_back<std::vector<cl_int>>(written(std::size_t{1} << 60)), wire::BadMessage);
  EXPECT_THROW(read_back<std::vector<std::string>>(written(SIZE_MAX)), wire::BadMessage);
  EXPECT_THROW(read_back<std::string>(written(SIZE_MAX)), wire::BadMessage);
}

TEST(Wire, EndsHoweverDeepARecipeIs) {
  auto recipe = std::make_shared<Recipe>();
  for (int depth = 0; depth <= kDeepestRecipe; ++depth) {
    auto outer = std::make_shared<Recipe>();
    outer->fallback = recipe;
    recipe = outer;
  }
  BuildOrder order;
  order.recipe = recipe;
  EXPECT_THROW(read_back<BuildOrder>(written(order)), wire::BadMessage);
}

TEST(Wire, BringsArgumentsBack) {
  Argument argument;
  argument.holds = Argument::Holds::value;
  argument.stamp = 5;
  const std::array<float, 16> matrix{1, 2, 3};
  argument.value.assign(matrix.data(), sizeof matrix);
  const auto value = read_back<Argument>(written(argument));
  EXPECT_TRUE(value.value.equals(matrix.data(), sizeof matrix));
  EXPECT_EQ(value.stamp, 5U);
  argument.holds = Argument::Holds::memory;
  argument.object = ObjectId{1, 2};
  EXPECT_EQ(read_back<Argument>(written(argument)).object, (ObjectId{1, 2}));
}

TEST(Wire, BringsFailuresBack) {
  const Bytes failed = written(Result<cl_ulong>{Failure{CL_OUT_OF_RESOURCES}});
  EXPECT_EQ(wire::Reader{failed}.take_result<cl_ulong>().error(), CL_OUT_OF_RESOURCES);
  const Bytes well = written(Result<cl_ulong>{cl_ulong{7}});
  EXPECT_EQ(*wire::Reader{well}.take_result<cl_ulong>(), 7U);
}

TEST(Address, IsUnderstoodOrRefused) {
  EXPECT_EQ(channel::Address::parse("unix:/run/socket").path, "/run/socket");
  EXPECT_EQ(channel::Address::parse("tcp:localhost:80").port, "80");
  EXPECT_EQ(channel::Address::parse("tcp:[::1]:80").path, "::1");
  EXPECT_EQ(channel::Address::parse("tcp:[::1]:80").text(), "tcp:[::1]:80");
  for (const char* wrong : {"", "unix:", "tcp:", "tcp:80", "tcp::80", "tcp:host:", "tcp:host:http", "http://host"})
    EXPECT_THROW((void)channel::Address::parse(wrong), std::invalid_argument) << wrong;
}

TEST(Protocols, NeighboursHaveOneInCommon) {
  using channel::common_protocol, channel::text_of_difference, channel::Protocols;
  const Protocols ours{7, 6};
  EXPECT_EQ(common_protocol(ours, {6, 5}), 6);
  EXPECT_EQ(common_protocol(ours, {7, 6}), 7);
  EXPECT_EQ(common_protocol(ours, {8, 7}), 7);
  EXPECT_EQ(common_protocol(ours, {5, 4}), 0);
  EXPECT_EQ(common_protocol(ours, {9, 8}), 0);
  EXPECT_EQ(text_of_difference({5, 4}, ours, "server", "client"),
            "the server speaks protocols 4 to 5, the client 6 to 7: update the server");
  EXPECT_EQ(text_of_difference({9, 8}, ours, "server", "client"),
            "the server speaks protocols 8 to 9, the client 6 to 7: update the client");
}

}  // namespace
}  // namespace grus
