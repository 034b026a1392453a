#include "vm/command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "vm/lines.hpp"

namespace grus::vm {
namespace {

constexpr int kBetweenLooks = 200;  // milliseconds

channel::Descriptor file_with(const std::string& text) {
  channel::Descriptor file{memfd_create("grus", MFD_CLOEXEC)};
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      lseek(file.get(), 0, SEEK_SET) != 0)
    throw Failed{fmt::format("no memory for a file: {}", std::strerror(errno))};
  return file;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// What it says is read.
std::vector<std::string> environment_in_english() {
  std::vector<std::string> variables{"LC_ALL=C"};
  for (char** one = environ; *one; ++one) {
    if (!std::string_view{*one}.starts_with("LC_ALL=")) variables.emplace_back(*one);
  }
  return variables;
}

pid_t spawn(const std::vector<std::string>& program, int input, int output) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  const auto environment = environment_in_english();
  pid_t child = -1;
  const int error = posix_spawnp(&child, program[0].c_str(), &files, &attributes, pointers_to(program).data(),
                                 pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error) throw Failed{fmt::format("`{}` can't be run: {}", program[0], std::strerror(error))};
  return child;
}

}  // namespace

Ran run(const std::vector<std::string>& program, const std::string& input, const std::function<void()>& meanwhile) {
  const channel::Descriptor its_input = file_with(input);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Failed{fmt::format("no pipe: {}", std::strerror(errno))};
  const channel::Descriptor read_end{ends[0]};
  channel::Descriptor write_end{ends[1]};
  const pid_t child = spawn(program, its_input.get(), write_end.get());
  write_end.reset();
  Ran ran;
  for (;;) {
    pollfd one{read_end.get(), POLLIN, 0};
    if (poll(&one, 1, kBetweenLooks) <= 0) {
      if (meanwhile) meanwhile();
      continue;
    }
    std::array<char, 4096> part;
    const ssize_t count = read(read_end.get(), part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    ran.said.append(part.data(), static_cast<std::size_t>(count));
  }
  while (waitpid(child, &ran.status, 0) < 0 && errno == EINTR) continue;
  return ran;
}

}  // namespace grus::vm
