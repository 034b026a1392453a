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

Exit status: 0 ended by SIGTERM or SIGINT, 1 it can't listen, 2 wrong usage.)";

struct Options {
  std::string port;
  std::string to;
  std::string listen;
};

int run_relay(const Options& options) {
  const bool is_host = !options.to.empty();
  if (is_host && !options.listen.empty()) throw Problem{"--listen is the guest's, --to the host's", kUsage};
  channel::RelayOptions about;
  about.port = options.port;
  about.side = is_host ? channel::RelayOptions::Side::host : channel::RelayOptions::Side::guest;
  about.address = options.to == "auto" ? channel::default_address()
                  : is_host            ? channel::Address::parse(options.to)
                                       : channel::Address::parse("virtio-serial:" + options.listen);
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
  return {relay, [options] { return run_relay(*options); }};
}

}  // namespace grus::cli
