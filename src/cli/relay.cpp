#include "channel/relay.hpp"

#include <CLI/CLI.hpp>
#include <memory>

#include "channel/stream.hpp"
#include "cli/command.hpp"
#include "cli/gpu_option.hpp"
#include "cli/problem.hpp"

namespace grus::cli {
namespace {

constexpr const char* kExamples =
    R"(A guest's programs use its host's devices through a virtio-serial port; one relay runs at each of its ends.

At the host, with QEMU's options for the port:
  qemu-system-x86_64 ... -device virtio-serial-pci \
    -chardev socket,id=grus,path=/run/grus/guest1.sock,server=on,wait=off \
    -device virtserialport,chardev=grus,name=org.grus.gpu.0
  grus serve &
  grus relay --port unix:/run/grus/guest1.sock --to auto
In the guest:
  grus relay --port /dev/virtio-ports/org.grus.gpu.0 &
  grus run --gpu virtio-serial: -- clinfo

With an area, memory that both share, commands and data go through that, and only set-up and what wakes a sleeper through
the port. Each guest needs a file of its own, and a device:
  truncate -s 256M /dev/shm/guest1 && chmod 600 /dev/shm/guest1
  qemu-system-x86_64 ... -object memory-backend-file,id=area,mem-path=/dev/shm/guest1,size=256M,share=on \
    -device ivshmem-plain,memdev=area,master=on
  grus relay --port unix:/run/grus/guest1.sock --to auto --area /dev/shm/guest1
In the guest:
  grus run --gpu ivshmem: -- clinfo
ivshmem:DEVICE names one of several, by its PCI address; ivshmem:DEVICE@PATH the relay's socket, too.

Exit status: 0 ended by SIGTERM or SIGINT, 1 it can't listen or can't use the area, 2 wrong usage.)";

struct Options {
  std::string port;
  std::string to;
  std::string listen;
  std::string area;
  std::uint64_t slice = channel::kUsualSlice >> 20U;  // MiB
};

int run_relay(const Options& options) {
  const bool is_host = !options.to.empty();
  if (is_host && !options.listen.empty()) throw Problem{"--listen is the guest's, --to the host's", kUsage};
  if (!is_host && !options.area.empty()) throw Problem{"--area is the host's: name the server with --to, too", kUsage};
  channel::RelayOptions about;
  about.area = options.area;
  about.slice = options.slice << 20U;
  about.port = options.port;
  about.side = is_host ? channel::RelayOptions::Side::host : channel::RelayOptions::Side::guest;
  about.address = options.to == "auto" ? channel::default_address()
                  : is_host            ? channel::Address::parse(options.to)
                                       : channel::Address::parse("virtio-serial:" + options.listen);
  if (!about.area.empty() && about.address.kind != channel::Address::Kind::unix_socket)
    throw Problem{"--area: the server must be at a Unix socket of this host", kUsage};
  try {
    channel::relay(about);
  } catch (const channel::Lost& lost) {
    throw Problem{lost.what()};
  }
  return 0;
}

}  // namespace

Subcommand add_relay(CLI::App& grus) {
  CLI::App* relay = grus.add_subcommand("relay", "Carry a guest's connections to a server of its host");
  auto options = std::make_shared<Options>();
  relay->footer(kExamples);
  relay->add_option("--port", options->port, "The port: a device in the guest, unix:PATH of QEMU's socket at the host")
      ->required()
      ->type_name("PORT");
  relay->add_option("--to", options->to, "At the host: the server, unix:PATH, or auto for this user's")
      ->check(is_server_address())
      ->type_name("ADDRESS");
  relay->add_option("--listen", options->listen, "In the guest: the socket for programs; /run/grus/host.sock")
      ->type_name("PATH");
  relay
      ->add_option("--area", options->area,
                   "At the host: the file behind the guest's ivshmem device, for ivshmem: there")
      ->type_name("FILE");
  relay->add_option("--slice", options->slice, "MiB of it for each session")
      ->check(CLI::Range(channel::kSmallestSlice >> 20U, std::uint64_t{1} << 20U))
      ->capture_default_str()
      ->type_name("MIB");
  return {relay, [options] { return run_relay(*options); }};
}

}  // namespace grus::cli
