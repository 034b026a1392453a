// Drivers that crash, hang or fail, beside one that works: the program runs on the one that works, and the person who
// started it reads what to do.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "faults/support/folders.hpp"
#include "faults/support/opencl.hpp"

namespace grus::test {
namespace fs = std::filesystem;
namespace {

void use_pocl_only() {
  for (const Listed& listed : list_platforms()) require(listed.name == kPocl, "no platform but PoCL's: " + listed.name);
  Workload{kPocl}.use();
}

struct Misbehaviour {
  const char* name;
  const char* how;
  const char* message;  // null: nothing to complain about
};

class MisbehavingVendor : public FaultTest, public ::testing::WithParamInterface<Misbehaviour> {
 protected:
  void expect_message(const Ended& ended, const std::string& message) const {
    EXPECT_TRUE(ended.said(fake_vendor().string() + " (named in " + (vendors() / "fake.icd").string() + ")")) << ended;
    EXPECT_TRUE(ended.said(message)) << ended;
    EXPECT_TRUE(ended.said("reinstall that driver or remove the file")) << ended;
  }
};

TEST_P(MisbehavingVendor, IsLeftOut) {
  add_fake();
  add_pocl();
  misbehave(GetParam().how);
  const Ended ended = run(use_pocl_only);
  EXPECT_TRUE(ended.exited_with(0)) << ended;
  if (GetParam().message) {
    expect_message(ended, GetParam().message);
  } else {
    EXPECT_EQ(ended.errors, "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Vendors, MisbehavingVendor,
    ::testing::Values(Misbehaviour{"CrashesAtLoad", "crash:load", "it crashed while loading (Segmentation fault)"},
                      Misbehaviour{"AbortsAtLoad", "abort:load", "it crashed while loading (Aborted)"},
                      Misbehaviour{"ExitsAtLoad", "exit:load", "it ended the process while loading"},
                      Misbehaviour{"HangsAtLoad", "hang:load", "it hung for"},
                      Misbehaviour{"CrashesWhenAsked", "crash:clIcdGetPlatformIDsKHR", "it crashed while loading"},
                      Misbehaviour{"ExitsWhenAsked", "exit:clIcdGetPlatformIDsKHR",
                                   "it ended the process while loading"},
                      Misbehaviour{"IsNoIcd", "no-icd", "clIcdGetPlatformIDsKHR is missing"},
                      Misbehaviour{"HasNoPlatform", "no-platforms", nullptr},
                      Misbehaviour{"FailsToListPlatforms", "fail:clIcdGetPlatformIDsKHR=-6", nullptr}),
    [](const auto& test) { return test.param.name; });

class Probe : public FaultTest {
 protected:
  // A copy, to be changed.
  void add_own_fake() {
    fs::copy_file(fake_vendor(), own_, fs::copy_options::overwrite_existing);
    add_vendor("fake.icd", own_);
  }
  void change_own_fake() { std::ofstream{own_, std::ios::app} << "\n"; }
  // How often the library was loaded, in the process itself or in a scratch process, while the body ran.
  int loads_during(const std::function<void()>& body) {
    int counted[2];
    EXPECT_EQ(pipe(counted), 0);
    misbehave("say=" + std::to_string(counted[1]));
    const Ended ended = run(body);
    EXPECT_TRUE(ended.exited_with(0)) << ended;
    close(counted[1]);
    int loads = 0;
    for (char byte; ::read(counted[0], &byte, 1) == 1;) ++loads;
    close(counted[0]);
    return loads;
  }
  static void use_fake() { Workload{kFake}.use(); }

  const fs::path own_ = folder() / "libown fake.so.1";  // a space, as paths may have
};

TEST_F(Probe, HappensOnceForEachLibrary) {
  add_own_fake();
  EXPECT_EQ(loads_during(use_fake), 2) << "the scratch process and the program";
  EXPECT_EQ(loads_during(use_fake), 1) << "the library is remembered";
  EXPECT_TRUE(fs::exists(folder() / "cache/grus/libraries"));
  change_own_fake();
  EXPECT_EQ(loads_during(use_fake), 2) << "it has changed";
  EXPECT_EQ(loads_during(use_fake), 1);
}

TEST_F(Probe, FindsALibraryThatTurnedBad) {
  add_own_fake();
  add_pocl();
  EXPECT_TRUE(run(use_fake).exited_with(0));
  change_own_fake();
  misbehave("crash:load");
  const Ended ended = run(use_pocl_only);
  EXPECT_TRUE(ended.exited_with(0)) << ended;
  EXPECT_TRUE(ended.said("it crashed while loading")) << ended;
  unset("FAKE_VENDOR");
  EXPECT_TRUE(run(use_fake).exited_with(0)) << "it is never remembered as bad";
}

TEST_F(Probe, WorksWithoutACache) {
  add_own_fake();
  write(folder() / "cache", "a file where the folder should be");
  EXPECT_EQ(loads_during(use_fake), 2);
  EXPECT_EQ(loads_during(use_fake), 2);
  set("XDG_CACHE_HOME", "");
  set("HOME", "");
  EXPECT_EQ(loads_during(use_fake), 2);
}

TEST_F(Probe, IgnoresGarbageInTheCache) {
  add_own_fake();
  fs::create_directories(folder() / "cache/grus");
  write(folder() / "cache/grus/libraries",
        own_.string() + "\n" + own_.string() + "\t\n" + own_.string() + "\t/ 1 2.3\nno tab\n\t\t\t\n");
  EXPECT_EQ(loads_during(use_fake), 2);
}

// The scratch process is a child of the program's, whatever the program does about children and signals.
TEST_F(Probe, NoticesACrashThoughTheProgramIgnoresItsChildren) {
  add_fake();
  add_pocl();
  misbehave("crash:load");
  const Ended ended = run([] {
    std::signal(SIGCHLD, SIG_IGN);
    use_pocl_only();
  });
  EXPECT_TRUE(ended.exited_with(0)) << ended;
  EXPECT_TRUE(ended.said("is left out")) << ended;
}

TEST_F(Probe, NoticesACrashThoughTheProgramReapsItsChildren) {
  add_fake();
  add_pocl();
  misbehave("crash:load");
  const Ended ended = run([] {
    std::signal(SIGCHLD, [](int) {
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
    });
    use_pocl_only();
  });
  EXPECT_TRUE(ended.exited_with(0)) << ended;
  EXPECT_TRUE(ended.said("is left out")) << ended;
}

TEST_F(Probe, IsNotDisturbedBySignals) {
  add_fake();
  const Ended ended = run([] {
    struct sigaction action {};
    action.sa_handler = [](int) {};  // without SA_RESTART: system calls are interrupted
    sigaction(SIGALRM, &action, nullptr);
    const itimerval often{{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, nullptr);
    use_fake();
  });
  EXPECT_TRUE(ended.exited_with(0)) << ended;
  EXPECT_EQ(ended.errors, "");
}

TEST_F(Probe, RunsNoneOfTheProgramsExitHandlers) {
  add_fake();
  add_pocl();
  misbehave("exit:load");
  set("GRUS_REPORT", folder() / "report");
  const fs::path handled = folder() / "handled";
  static int file = -1;
  const Ended ended = run([&] {
    file = open(handled.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    std::atexit([] { [[maybe_unused]] const auto written = ::write(file, "x", 1); });
    std::printf("buffered");
    use_pocl_only();
  });
  EXPECT_TRUE(ended.exited_with(0)) << ended;
  EXPECT_EQ(ended.output, "buffered");
  EXPECT_EQ(read(handled), "x");
  const std::string report = read(folder() / "report");
  EXPECT_EQ(std::count(report.begin(), report.end(), '\n'), 1) << report;
}

}  // namespace
}  // namespace grus::test
