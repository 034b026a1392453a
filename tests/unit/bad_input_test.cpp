// Bad input: every entry point of OpenCL is called with one parameter wrong at a time, and answers with the code that
// the specification has for that. bad_input/cases_*.inc say what is wrong with which parameter.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>

#include "unit/bad_input/roles_of_objects.hpp"

namespace grus::test {
namespace {

Table make_table() {
  Table table;
// CASES(call, parameters…): with good parameters it succeeds.
// REFUSED(codes, call, parameters…): it is refused even with good ones, or there is no good one to change.
#define CASES(name, ...) table.add(#name, CL_SUCCESS, cl().name __VA_OPT__(, ) __VA_ARGS__)
#define REFUSED(codes, name, ...) table.add(#name, codes, cl().name, __VA_ARGS__)
#include "unit/bad_input/cases_commands.inc"
#include "unit/bad_input/cases_memory.inc"
#include "unit/bad_input/cases_objects.inc"
#include "unit/bad_input/cases_programs.inc"
  return table;
}

Table& table() {
  static Table instance = make_table();
  return instance;
}

// If a case crashes, the test says which.
const char* volatile g_running = "";
struct sigaction g_default_action;

void say_what_crashed(int signal_number) {
  const char* what = g_running;
  (void)!write(STDERR_FILENO, "\ncrashed: ", 10);
  (void)!write(STDERR_FILENO, what, std::strlen(what));
  (void)!write(STDERR_FILENO, "\n", 1);
  sigaction(signal_number, &g_default_action, nullptr);  // and crash again
}

class BadInput : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    struct sigaction action {};
    action.sa_handler = say_what_crashed;
    sigaction(SIGSEGV, &action, &g_default_action);
  }
};

TEST_P(BadInput, IsAnsweredWithTheRightCode) {
  const auto& cases = table()[GetParam()];
  ASSERT_FALSE(cases.empty()) << "has no cases in tests/unit/bad_input/cases_*.inc";
  for (const Case& each : cases) {
    const std::string what = std::string{GetParam()} + ": " + each.what;
    SCOPED_TRACE(what);
    g_running = what.c_str();
    const cl_int code = each.run();
    if (!each.codes.have(code)) ADD_FAILURE() << "answered " << code << ", not one of " << each.codes.text();
    g_running = "";
  }
  RecordProperty("cases", static_cast<int>(cases.size()));
  EXPECT_EQ(cl().clFinish(world().own.queue), CL_SUCCESS);
}

// One test for each row of the table of entry points: a call without cases fails.
constexpr const char* kCalls[] = {
#define GRUS_CALL(name, since, family, kind) #name,
#include "api/calls.inc"
#undef GRUS_CALL
};
INSTANTIATE_TEST_SUITE_P(Calls, BadInput, ::testing::ValuesIn(kCalls),
                         [](const auto& call) { return std::string{call.param}; });

}  // namespace
}  // namespace grus::test
