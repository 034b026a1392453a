// Which kernels can be run in pieces, and what the pieces are.
#include "executor/splitting.hpp"

#include <gtest/gtest.h>

#include <set>

namespace grus {
namespace {

Splits of_source(const std::string& source, const std::string& options = "") {
  Recipe recipe;
  recipe.source = source;
  recipe.options = options;
  return splits_of(recipe);
}

TEST(SplittingTest, KernelsThatOnlyKnowTheirOwnPlaceAreSplit) {
  EXPECT_EQ(of_source("kernel void f(global int* a) { a[get_global_id(0)]++; }"), Splits::always);
}

TEST(SplittingTest, KernelsThatCouldSeeItAreNot) {
  for (const char* word :
       {"get_group_id(0)", "get_num_groups(0)", "get_global_size(0)", "get_global_offset(0)", "get_global_linear_id()",
        "atomic_inc(a)", "atom_add(a, 1)", "printf(\"x\")", "__sync_fetch_and_add(a, 1)", "*a; mem_fence(1)"})
    EXPECT_EQ(of_source("kernel void f(global int* a) { *a = " + std::string{word} + "; }"), Splits::never) << word;
  EXPECT_EQ(of_source("kernel void f(volatile global int* a) { while (*a) ; }"), Splits::never);
  EXPECT_EQ(of_source("global int seen; kernel void f(global int* a) { a[0] = seen++; }"), Splits::never);
}

TEST(SplittingTest, WordsCanNotBeHidden) {
  EXPECT_EQ(of_source("kernel void f(global int* a) { *a = get_gr\\\noup_id(0); }"), Splits::never);
  EXPECT_EQ(of_source("kernel void f(global int* a) { *a = get_gr\\ \t\r\noup_id(0); }"), Splits::never);
  EXPECT_EQ(of_source("#define J(a, b) a##b\nkernel void f(global int* a) { *a = J(get_gro, up_id)(0); }"),
            Splits::never);
  EXPECT_EQ(of_source("kernel void f(global int* a) { *a = X; }", "-DX=get_group_id(0)"), Splits::never);
  EXPECT_EQ(of_source("#include <elsewhere.h>\nkernel void f(global int* a) { *a = X; }"), Splits::never);
  EXPECT_EQ(of_source("#define H \"elsewhere.h\"\n#include H\nkernel void f() {}"), Splits::never);
  EXPECT_EQ(of_source("kernel void f() {}", "-include elsewhere.h"), Splits::never);
  EXPECT_EQ(of_source("#import \"elsewhere.h\"\nkernel void f() {}"), Splits::never);
  EXPECT_EQ(of_source("kernel void f(global int* a) { *a = __builtin_amdgcn_workgroup_id_x(); }"), Splits::never);
}

TEST(SplittingTest, HeadersAndLinkedProgramsCountToo) {
  const auto harmless = std::make_shared<Recipe>();
  harmless->source = "int own(int x) { return x; }";
  const auto telling = std::make_shared<Recipe>();
  telling->source = "int own(int x) { return get_group_id(0); }";
  for (const auto& [header, expected] : {std::pair{harmless, Splits::always}, std::pair{telling, Splits::never}}) {
    Recipe recipe;
    recipe.source = "#include \"own.h\"\nkernel void f(global int* a) { *a = own(1); }";
    recipe.headers = {{"own.h", header}};
    EXPECT_EQ(splits_of(recipe), expected);
    Recipe linked;
    linked.origin = ProgramOrigin::linked;
    linked.inputs = {harmless, header};
    EXPECT_EQ(splits_of(linked), expected);
  }
}

TEST(SplittingTest, WhatHasNoSourceIsNot) {
  for (const auto origin : {ProgramOrigin::il, ProgramOrigin::binary, ProgramOrigin::built_in, ProgramOrigin::linked}) {
    Recipe recipe;
    recipe.origin = origin;
    EXPECT_EQ(splits_of(recipe), Splits::never);
  }
}

// Every work-item is in one piece, and work-groups stay whole.
void expect_whole(const Triple& offset, const Triple& global, const Triple* local, cl_uint dimensions,
                  std::size_t first) {
  command::Launch launch;
  launch.dimensions = dimensions;
  launch.offset = offset.data();
  launch.global = global.data();
  launch.local = local ? local->data() : nullptr;
  Cutter cutter{launch, Splits::with_local_size};
  ASSERT_GT(cutter.left(), 1U);
  std::vector<Piece> pieces;
  for (std::size_t groups = first; cutter.left() != 0; groups = 2 * groups + 1) pieces.push_back(cutter.take(groups));
  ASSERT_GT(pieces.size(), 1U);
  std::set<std::array<std::size_t, 3>> seen;
  std::uint64_t items = 0;
  for (const Piece& piece : pieces) {
    items += piece.items;
    for (std::size_t z = 0; z < piece.global[2]; ++z) {
      for (std::size_t y = 0; y < piece.global[1]; ++y) {
        for (std::size_t x = 0; x < piece.global[0]; ++x)
          EXPECT_TRUE(seen.insert({piece.offset[0] + x, piece.offset[1] + y, piece.offset[2] + z}).second);
      }
    }
    for (cl_uint dimension = 0; local && dimension < dimensions; ++dimension)
      EXPECT_EQ((piece.offset[dimension] - offset[dimension]) % (*local)[dimension], 0U);
  }
  EXPECT_EQ(items, global[0] * global[1] * global[2]);
  EXPECT_EQ(seen.size(), items);
  for (const auto& place : seen) {
    for (std::size_t dimension = 0; dimension < 3; ++dimension)
      EXPECT_LT(place[dimension] - offset[dimension], global[dimension]);
  }
}

TEST(SplittingTest, PiecesAreTheWhole) {
  const Triple local{4, 2, 1};
  expect_whole({0, 0, 0}, {64, 1, 1}, &local, 1, 1);
  expect_whole({3, 0, 0}, {68, 1, 1}, &local, 1, 3);
  expect_whole({1, 2, 3}, {12, 20, 6}, &local, 3, 2);
  expect_whole({0, 5, 0}, {8, 30, 1}, &local, 2, 1);
}

TEST(SplittingTest, WhatHasOneWorkGroupIsNot) {
  const Triple global{64, 1, 1};
  command::Launch launch;
  launch.dimensions = 1;
  launch.global = global.data();
  EXPECT_LE((Cutter{launch, Splits::always}.left()), 1U);
  launch.local = global.data();
  EXPECT_LE((Cutter{launch, Splits::always}.left()), 1U);
  const Triple other{48, 1, 1};
  launch.local = other.data();
  EXPECT_EQ((Cutter{launch, Splits::always}.left()), 0U);
  launch.local = global.data();
  const Triple more{4096, 1, 1};
  launch.global = more.data();
  EXPECT_GT((Cutter{launch, Splits::with_local_size}.left()), 1U);
  launch.local = nullptr;
  EXPECT_EQ((Cutter{launch, Splits::with_local_size}.left()), 0U);
  EXPECT_GT((Cutter{launch, Splits::always}.left()), 1U);
}

TEST(SplittingTest, PiecesFillTheDevice) {
  command::Launch launch;
  const std::size_t global[] = {64 * 100, 3};
  const std::size_t local[] = {64, 1};
  launch.dimensions = 2;
  launch.global = global;
  launch.local = local;
  const Cutter cutter{launch, Splits::with_local_size};
  EXPECT_EQ(cutter.filling(1, 1), 1U);
  EXPECT_EQ(cutter.filling(1, 3), 1U) << "it has three rows";
  EXPECT_EQ(cutter.filling(1, 12), 4U);
  EXPECT_EQ(cutter.filling(5, 12), 8U);
  EXPECT_EQ(cutter.filling(1, 1000), 100U) << "all there are";
}

}  // namespace
}  // namespace grus
