#include "server/sandbox.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/log.hpp"
#include "channel/descriptor.hpp"

namespace grus::server {
namespace {

constexpr rlim_t kMostFiles = 4096;  // open at a time
constexpr rlim_t kLargestFile = rlim_t{4} << 30;

// No driver does these to another process by mistake.
constexpr int kDeadly[] = {SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev),
                           SCMP_SYS(pidfd_getfd)};

// These fail, so that a driver that tries goes on without.
constexpr int kDenied[] = {
    // New connections. io_uring could make them, too, where no filter looks.
    SCMP_SYS(connect), SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register),
    // Other processes, by ways that name no process
    SCMP_SYS(tkill), SCMP_SYS(pidfd_open), SCMP_SYS(pidfd_send_signal), SCMP_SYS(process_madvise),
    SCMP_SYS(process_mrelease),
    // What is mounted, and namespaces
    SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(pivot_root), SCMP_SYS(chroot), SCMP_SYS(move_mount),
    SCMP_SYS(open_tree), SCMP_SYS(fsopen), SCMP_SYS(fsconfig), SCMP_SYS(fsmount), SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr), SCMP_SYS(unshare), SCMP_SYS(setns),
    // The kernel and its modules
    SCMP_SYS(kexec_load), SCMP_SYS(kexec_file_load), SCMP_SYS(init_module), SCMP_SYS(finit_module),
    SCMP_SYS(delete_module), SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd), SCMP_SYS(kcmp),
    SCMP_SYS(syslog), SCMP_SYS(iopl), SCMP_SYS(ioperm), SCMP_SYS(reboot),
    // Keys
    SCMP_SYS(add_key), SCMP_SYS(keyctl), SCMP_SYS(request_key),
    // The machine's settings
    SCMP_SYS(swapon), SCMP_SYS(swapoff), SCMP_SYS(acct), SCMP_SYS(quotactl), SCMP_SYS(quotactl_fd),
    SCMP_SYS(settimeofday), SCMP_SYS(clock_settime), SCMP_SYS(sethostname), SCMP_SYS(setdomainname),
    SCMP_SYS(fanotify_init), SCMP_SYS(open_by_handle_at),
    // Who it is
    SCMP_SYS(setuid), SCMP_SYS(setgid), SCMP_SYS(setreuid), SCMP_SYS(setregid), SCMP_SYS(setresuid),
    SCMP_SYS(setresgid), SCMP_SYS(setgroups), SCMP_SYS(setfsuid), SCMP_SYS(setfsgid), SCMP_SYS(capset)};

// Signals go to this process alone: abort() and threads need them. They name it first.
constexpr int kSignals[] = {SCMP_SYS(kill), SCMP_SYS(tgkill), SCMP_SYS(rt_sigqueueinfo), SCMP_SYS(rt_tgsigqueueinfo)};

// A socket of these sends to whatever name it is told, connected or not.
constexpr scmp_datum_t kTypeMask = 0xf;
constexpr int kTypesWithoutConnection[] = {SOCK_DGRAM, SOCK_RAW};

constexpr int kNamespaces[] = {CLONE_NEWNS,  CLONE_NEWUTS, CLONE_NEWIPC,   CLONE_NEWUSER,
                               CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP};

void limit(int resource, rlim_t most) {
  rlimit now{};
  getrlimit(static_cast<__rlimit_resource>(resource), &now);
  now.rlim_max = std::min(now.rlim_max, most);
  now.rlim_cur = std::min(now.rlim_cur, now.rlim_max);
  setrlimit(static_cast<__rlimit_resource>(resource), &now);
}

// Root's, where the server has them: drivers need none, since they work for others.
void drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  syscall(SYS_capset, &header, none);
}

void expect(int code) {
  if (code != 0) throw std::runtime_error{fmt::format("the sandbox can't be made: {}", std::strerror(-code))};
}

namespace fs = std::filesystem;

constexpr std::uint64_t kOfFiles = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE;
constexpr std::uint64_t kOfFolders = LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                                     LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
                                     LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                                     LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                                     LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER;

constexpr std::uint64_t kTruncating = std::uint64_t{1} << 14U;  // LANDLOCK_ACCESS_FS_TRUNCATE, which is newer

// What a process may do with files. Rules can only allow: all that doesn't lead to what is hidden.
class Domain {
 public:
  Domain(long version, std::vector<fs::path> hidden)
      : of_files_{version < 3 ? kOfFiles : kOfFiles | kTruncating}, hidden_{std::move(hidden)} {
    landlock_ruleset_attr about{};
    about.handled_access_fs = of_files_ | kOfFolders;
    rules_ = channel::Descriptor{static_cast<int>(syscall(SYS_landlock_create_ruleset, &about, sizeof about, 0))};
    allow_around("/");
  }

  void allow(const fs::path& what) {
    std::error_code error;
    const channel::Descriptor there{open(what.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW)};
    landlock_path_beneath_attr rule{};
    rule.allowed_access = fs::is_directory(what, error) ? of_files_ | kOfFolders : of_files_;
    rule.parent_fd = there.get();
    syscall(SYS_landlock_add_rule, rules_.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
  }

  void enter() const {
    if (syscall(SYS_landlock_restrict_self, rules_.get(), 0) != 0)
      throw std::runtime_error{fmt::format("files can't be hidden: {}", std::strerror(errno))};
  }

 private:
  void allow_around(const fs::path& at) {
    const auto is_here = [&](const fs::path& one) { return one == at; };
    const auto is_in_here = [&](const fs::path& one) {
      return std::mismatch(at.begin(), at.end(), one.begin(), one.end()).first == at.end();
    };
    if (std::any_of(hidden_.begin(), hidden_.end(), is_here)) return;
    if (std::none_of(hidden_.begin(), hidden_.end(), is_in_here)) return allow(at);
    std::error_code error;
    for (const auto& inside : fs::directory_iterator{at, error}) {
      if (!inside.is_symlink(error)) allow_around(inside.path());  // it counts what it leads to
    }
  }

  const std::uint64_t of_files_;
  const std::vector<fs::path> hidden_;
  channel::Descriptor rules_;
};

#ifdef __SANITIZE_ADDRESS__
bool is_in_sandbox = false;
#endif

}  // namespace

std::string why_no_sandbox() {
  // A null filter is refused with EFAULT where there are filters.
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr) == 0 || errno == EFAULT) return {};
  return fmt::format("this kernel has no seccomp filters ({})", std::strerror(errno));
}

void enter_sandbox() {
  drop_capabilities();
  prctl(PR_SET_DUMPABLE, 0);  // other processes of this user can't look into it, where there is no Landlock
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NOFILE, kMostFiles);
  setsid();  // away from the terminal, into which it could type
  const std::unique_ptr<void, void (*)(void*)> filter{seccomp_init(SCMP_ACT_ALLOW), seccomp_release};
  if (!filter) throw std::bad_alloc{};
  // Kernels before 5.16 would slow down all that runs behind a filter, compilers and kernels of a CPU among it.
  (void)seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_SSB, 1);
  const auto deny = [&](int call) { expect(seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), call, 0)); };
  const auto deny_if = [&](int call, const scmp_arg_cmp& when) {
    expect(seccomp_rule_add_array(filter.get(), SCMP_ACT_ERRNO(EPERM), call, 1, &when));
  };
  for (const int call : kDeadly) expect(seccomp_rule_add(filter.get(), SCMP_ACT_KILL_PROCESS, call, 0));
  for (const int call : kDenied) deny(call);
  deny_if(SCMP_SYS(socket), {0, SCMP_CMP_NE, AF_UNIX, 0});
  for (const auto type : kTypesWithoutConnection) {
    for (const int call : {SCMP_SYS(socket), SCMP_SYS(socketpair)})
      deny_if(call, {1, SCMP_CMP_MASKED_EQ, kTypeMask, static_cast<scmp_datum_t>(type)});
  }
  for (const int call : kSignals) deny_if(call, {0, SCMP_CMP_NE, static_cast<scmp_datum_t>(getpid()), 0});
  deny_if(SCMP_SYS(prlimit64), {0, SCMP_CMP_NE, 0, 0});
  for (const int flag : kNamespaces) {
    const auto bit = static_cast<scmp_datum_t>(static_cast<unsigned>(flag));
    deny_if(SCMP_SYS(clone), {0, SCMP_CMP_MASKED_EQ, bit, bit});
  }
  // Its flags are where no filter can look; without it, the C library uses the older call.
  expect(seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0));
  expect(seccomp_load(filter.get()));  // with no new privileges
#ifdef __SANITIZE_ADDRESS__
  is_in_sandbox = true;
#endif
}

void hide(std::span<const fs::path> folders, const fs::path& own) {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 2) return;
  std::vector<fs::path> hidden;
  for (const fs::path& folder : folders) {
    std::error_code error;
    hidden.push_back(fs::canonical(folder, error));
    if (error) hidden.pop_back();
  }
  Domain domain{version, std::move(hidden)};
  if (!own.empty()) domain.allow(own);
  domain.enter();
}

void limit_files() {
  limit(RLIMIT_FSIZE, kLargestFile);
  std::signal(SIGXFSZ, SIG_IGN);  // the write fails, that is enough
}

}  // namespace grus::server

#ifdef __SANITIZE_ADDRESS__
// Looking for leaks takes ptrace. The sanitizer would wait for ever for the process that was killed for it.
extern "C" [[gnu::visibility("default")]] int __lsan_is_turned_off() { return grus::server::is_in_sandbox ? 1 : 0; }
#endif
