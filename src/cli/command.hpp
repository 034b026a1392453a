// The subcommands of `grus`, one file each.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace grus::cli {

struct Subcommand {
  CLI::App* app;
  std::function<int()> run;  // answers the exit status; throws Problem
};

// What follows the first `--` of the command line is never looked at here: it is the program and its arguments.
Subcommand add_run(CLI::App& grus, const std::vector<std::string>& after_dashes);
Subcommand add_info(CLI::App& grus);
Subcommand add_bench(CLI::App& grus);
Subcommand add_serve(CLI::App& grus);
Subcommand add_ps(CLI::App& grus);
Subcommand add_tenants(CLI::App& grus);
Subcommand add_top(CLI::App& grus);
Subcommand add_move(CLI::App& grus);
Subcommand add_drain(CLI::App& grus);
Subcommand add_suspend(CLI::App& grus);
Subcommand add_resume(CLI::App& grus);
Subcommand add_checkpoint(CLI::App& grus);
Subcommand add_restore(CLI::App& grus);
Subcommand add_why(CLI::App& grus);
Subcommand add_profile(CLI::App& grus);
Subcommand add_keys(CLI::App& grus);
Subcommand add_relay(CLI::App& grus);
Subcommand add_agent(CLI::App& grus);
Subcommand add_vm(CLI::App& grus);
Subcommand add_worker(CLI::App& grus);
Subcommand add_door(CLI::App& grus);
Subcommand add_enable(CLI::App& grus);
Subcommand add_disable(CLI::App& grus);

}  // namespace grus::cli
