// What a worker can't do once it is in its sandbox, and what it still can. Each in a process of its own.
#include "server/sandbox.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/keyctl.h>
#include <linux/landlock.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

namespace grus::server {
namespace {

namespace fs = std::filesystem;

// How a process in the sandbox ends: its exit status, or the signal as a negative number.
int ended_inside(const std::function<int()>& what) {
  const pid_t child = fork();
  if (child == 0) {
    enter_sandbox();
    _exit(what());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int error_of(long result) { return result < 0 ? errno : 0; }

TEST(Sandbox, IsSupportedHere) { EXPECT_EQ(why_no_sandbox(), ""); }

TEST(Sandbox, LookingIntoOtherProcessesIsDeadly) {
  EXPECT_EQ(ended_inside([] { return error_of(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }), -SIGSYS);
  EXPECT_EQ(ended_inside([] { return error_of(process_vm_readv(getppid(), nullptr, 0, nullptr, 0, 0)); }), -SIGSYS);
  EXPECT_EQ(ended_inside([] { return error_of(process_vm_writev(getppid(), nullptr, 0, nullptr, 0, 0)); }), -SIGSYS);
}

TEST(Sandbox, SignalsReachNobodyElse) {
  const auto sends = [](auto call) { return ended_inside([&] { return error_of(call()); }); };
  for (const auto call : {SYS_kill, SYS_tkill}) EXPECT_EQ(sends([&] { return syscall(call, getppid(), 0); }), EPERM);
  EXPECT_EQ(sends([] { return syscall(SYS_tgkill, getppid(), getppid(), 0); }), EPERM);
  EXPECT_EQ(sends([] { return kill(0, 0); }), EPERM);
  EXPECT_EQ(sends([] { return kill(-1, 0); }), EPERM);
  EXPECT_EQ(sends([] { return sigqueue(getppid(), 0, {}); }), EPERM);
  EXPECT_EQ(sends([] { return syscall(SYS_pidfd_open, getppid(), 0); }), EPERM);
  EXPECT_EQ(sends([] { return syscall(SYS_prlimit64, getppid(), RLIMIT_CPU, nullptr, nullptr); }), EPERM);
}

TEST(Sandbox, SignalsReachItself) {
  EXPECT_EQ(ended_inside([] { return kill(getpid(), 0); }), 0);
  EXPECT_EQ(ended_inside([] { return raise(SIGTERM); }), -SIGTERM);
  EXPECT_EQ(ended_inside([]() -> int { std::abort(); }), -SIGABRT);
  EXPECT_EQ(ended_inside([] {
              std::thread other{[] { pause(); }};
              pthread_kill(other.native_handle(), SIGTERM);
              other.join();
              return 0;
            }),
            -SIGTERM);
}

TEST(Sandbox, TheNetworkIsOutOfReach) {
  for (const int domain : {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_VSOCK})
    EXPECT_EQ(ended_inside([&] { return error_of(socket(domain, SOCK_STREAM, 0)); }), EPERM) << domain;
  EXPECT_EQ(ended_inside([] {
              sockaddr_un name{};
              name.sun_family = AF_UNIX;
              const int own = socket(AF_UNIX, SOCK_STREAM, 0);
              return own < 0 ? 255 : error_of(connect(own, reinterpret_cast<sockaddr*>(&name), sizeof name));
            }),
            EPERM);
  // They could send to any name without being connected.
  for (const int type : {int{SOCK_DGRAM}, int{SOCK_RAW}, SOCK_DGRAM | SOCK_CLOEXEC}) {
    int ends[2];
    EXPECT_EQ(ended_inside([&] { return error_of(socket(AF_UNIX, type, 0)); }), EPERM);
    EXPECT_EQ(ended_inside([&] { return error_of(socketpair(AF_UNIX, type, 0, ends)); }), EPERM);
  }
}

TEST(Sandbox, TheSystemIsOutOfReach) {
  const auto denied = [](auto call) { EXPECT_EQ(ended_inside([&] { return error_of(call()); }), EPERM); };
  denied([] { return mount("none", "/nowhere", "tmpfs", 0, nullptr); });
  denied([] { return umount2("/nowhere", 0); });
  denied([] { return syscall(SYS_pivot_root, "/nowhere", "/nowhere"); });
  denied([] { return syscall(SYS_kexec_load, 0, 0, nullptr, 0); });
  denied([] { return syscall(SYS_init_module, nullptr, 0, ""); });
  denied([] { return syscall(SYS_bpf, 0, nullptr, 0); });
  denied([] { return syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0); });
  denied([] { return syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY); });
  denied([] { return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 0); });
  denied([] { return syscall(SYS_io_uring_setup, 1, nullptr); });
  denied([] { return syscall(SYS_open_by_handle_at, -1, nullptr, 0); });
  denied([] { return syscall(SYS_setuid, getuid()); });  // not through the library: the thread sanitizer has its own
  denied([] { return syscall(SYS_setgid, getgid()); });
  denied([] { return unshare(CLONE_NEWUSER); });
  denied([] { return setns(-1, 0); });
}

TEST(Sandbox, ProcessesStayInTheirNamespaces) {
  EXPECT_EQ(ended_inside([] { return error_of(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0)); }), EPERM);
  EXPECT_EQ(ended_inside([] { return error_of(syscall(SYS_clone3, nullptr, 0)); }), ENOSYS);
}

TEST(Sandbox, WhatDriversDoStillWorks) {
  EXPECT_EQ(ended_inside([] {
              int ran = 0;
              std::thread{[&] { ran = 1; }}.join();
              return ran;
            }),
            1);
  EXPECT_EQ(ended_inside([] {
              const pid_t linker = fork();
              if (linker == 0) execl("/bin/sh", "sh", "-c", "exit 7", nullptr);
              int status = 0;
              waitpid(linker, &status, 0);
              return WEXITSTATUS(status);
            }),
            7);
  EXPECT_EQ(ended_inside([] {
              int ends[2];
              return error_of(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
            }),
            0);
}

TEST(Sandbox, WhatItStartsIsInIt) {
  EXPECT_EQ(ended_inside([] {
              const pid_t child = fork();
              if (child == 0) _exit(error_of(socket(AF_INET, SOCK_STREAM, 0)));
              int status = 0;
              waitpid(child, &status, 0);
              return WEXITSTATUS(status);
            }),
            EPERM);
}

TEST(Sandbox, NothingIsLeftOfACrash) {
  EXPECT_EQ(ended_inside([] {
              rlimit core{};
              getrlimit(RLIMIT_CORE, &core);
              return static_cast<int>(core.rlim_max);
            }),
            0);
}

class Hiding : public testing::Test {
 protected:
  void SetUp() override {
    if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 2)
      GTEST_SKIP() << "this kernel can't hide folders";
    std::string made = fs::temp_directory_path() / "grus-hidden-XXXXXX";
    ASSERT_TRUE(mkdtemp(made.data()));
    all_ = made;
    for (const char* name : {"keys", "keys/deeper", "caches", "caches/own", "caches/other", "else", "else/deeper"}) {
      fs::create_directory(all_ / name);
      std::ofstream{all_ / name / "file"} << "something";
    }
    fs::create_symlink(all_ / "keys", all_ / "else" / "keys");
  }
  void TearDown() override { fs::remove_all(all_); }

  template <typename Call>
  int hides(Call call) const {
    return ended_inside([&] {
      const fs::path hidden[] = {all_ / "keys", all_ / "caches", all_ / "not there"};
      hide(hidden, all_ / "caches" / "own");
      return error_of(call());
    });
  }
  int opens(const fs::path& file, int flags = O_RDONLY) const {
    return hides([&] { return open((all_ / file).c_str(), flags, 0600); });
  }
  const char* name(const char* of) { return names_.emplace_back(all_ / of).c_str(); }

 private:
  fs::path all_;
  std::deque<std::string> names_;
};

TEST_F(Hiding, WhatIsHiddenCantBeRead) {
  for (const char* file : {"keys/file", "keys/deeper/file", "else/keys/file", "caches/file", "caches/other/file"})
    EXPECT_EQ(opens(file), EACCES) << file;
  for (const char* file : {"else/file", "else/deeper/file", "caches/own/file", "/proc/self/maps", "/proc/self/status"})
    EXPECT_EQ(opens(file), 0) << file;
}

TEST_F(Hiding, WhatIsHiddenCantBeChanged) {
  for (const char* file : {"keys/file", "caches/other/file"}) {
    EXPECT_EQ(opens(file, O_WRONLY), EACCES) << file;
    EXPECT_EQ(hides([&] { return unlink(name(file)); }), EACCES) << file;
  }
  EXPECT_EQ(opens("caches/other/new", O_WRONLY | O_CREAT), EACCES);
  EXPECT_EQ(hides([&] { return rename(name("caches/own/file"), name("caches/other/file")); }), EACCES);
  EXPECT_EQ(hides([&] { return rename(name("keys"), name("else/moved")); }), EACCES);
  EXPECT_EQ(hides([&] { return link(name("keys/file"), name("else/linked")); }), EXDEV);
  EXPECT_EQ(hides([&] { return symlink("/", name("caches/link")); }), EACCES);
  EXPECT_EQ(opens("caches/own/new", O_WRONLY | O_CREAT), 0);
  EXPECT_EQ(hides([&] { return rename(name("caches/own/new"), name("else/new")); }), 0);
  EXPECT_EQ(hides([&] { return rename(name("else/new"), name("else/deeper/new")); }), 0);
  EXPECT_EQ(opens("/dev/null", O_WRONLY), 0);
}

// Also where there is nothing to hide.
TEST_F(Hiding, ProcessesAreOutOfReach) {
  const int file = memfd_create("secret", 0);
  const std::string parent = "/proc/" + std::to_string(getpid());
  for (const std::string& name : {parent + "/mem", parent + "/maps", parent + "/fd/" + std::to_string(file)}) {
    EXPECT_EQ(error_of(open(name.c_str(), O_RDONLY)), 0);
    EXPECT_EQ(ended_inside([&] {
                hide({});
                return error_of(open(name.c_str(), O_RDONLY));
              }),
              EACCES)
        << name;
  }
  close(file);
}

TEST(Sandbox, FilesStaySmall) {
  EXPECT_EQ(ended_inside([] {
              limit_files();
              return error_of(ftruncate(memfd_create("test", 0), off_t{1} << 40));
            }),
            EFBIG);
}

}  // namespace
}  // namespace grus::server
