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
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

namespace grus::server {
namespace {

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

TEST(Sandbox, AFolderCanBeHidden) {
  if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 2)
    GTEST_SKIP() << "this kernel can't hide folders";
  namespace fs = std::filesystem;
  std::string made = fs::temp_directory_path() / "grus-hidden-XXXXXX";
  ASSERT_TRUE(mkdtemp(made.data()));
  const fs::path all = made;
  for (const char* name : {"keys", "keys/deeper", "cache", "cache/deeper"}) fs::create_directory(all / name);
  for (const char* name : {"keys/file", "keys/deeper/file", "cache/file"}) std::ofstream{all / name} << "something";
  fs::create_symlink(all / "keys", all / "cache" / "keys");
  const auto hides = [&](auto call) {
    return ended_inside([&] {
      hide(all / "keys");
      return error_of(call());
    });
  };
  const auto reads = [&](const fs::path& file) { return hides([&] { return open((all / file).c_str(), O_RDONLY); }); };
  EXPECT_EQ(reads("keys/file"), EACCES);
  EXPECT_EQ(reads("keys/deeper/file"), EACCES);
  EXPECT_EQ(reads("cache/keys/file"), EACCES);
  EXPECT_EQ(reads("cache/file"), 0);
  EXPECT_EQ(reads("/proc/self/maps"), 0);
  EXPECT_EQ(hides([&] { return open(("/proc/" + std::to_string(getppid()) + "/mem").c_str(), O_RDONLY); }), EACCES);
  EXPECT_EQ(hides([&] { return rename((all / "keys").c_str(), (all / "cache/moved").c_str()); }), EXDEV);
  EXPECT_EQ(hides([&] { return link((all / "keys/file").c_str(), (all / "cache/linked").c_str()); }), EXDEV);
  EXPECT_EQ(hides([&] { return rename((all / "cache/file").c_str(), (all / "cache/deeper/file").c_str()); }), 0);
  fs::remove_all(all);
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
