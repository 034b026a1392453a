// Programs to be moved while they run. Each works until its standard input ends, checks everything at the end, and
// prints one line: how often it went round, the longest that one round took, and "right" or what is wrong.
//   busy [BUFFERS [MIB [DIRTY_MIB]]]   buffers of so many MiB, of the first of which a part is worked on all the time
//   scattered [BUFFERS [MIB [PAGES [MS]]]]   kernels of so many ms in turn on all buffers, each of which writes to some
//                pages here and there; tells how many there were in every tenth of a second, from when on
//   const        a kernel writes through a pointer to const
//   scope        a program with a program-scope variable
//   mapped       a region that is mapped for writing the whole time, and written by a thread
//   unmapped     buffers that are mapped, written, and unmapped behind a kernel that takes long; then mapped again, or
//                released, at once
//   lent         a buffer in the program's own memory, part of which is mapped and written, and then all compared
//   borrowed     such buffers made and released all the time, with their memory
//   callback     callbacks that take long, and call back
//   create       objects made, built again and freed all the time
//   rebuild      a large program that is built all the time, longer than a move takes
//   programs [COUNT]   a kernel of each of so many programs in turn
//   image        an image, of which a part is mapped and written, and then all of it
//   images       one of every type, a little of which is written all the time
//   clock        the times of events never go back
//   enqueue [WORDS]   a thread that only enqueues; tells its longest calls: when, how long, and how often meanwhile
//                another thread took the core from it
//   backlog COUNT MS  so many kernels, each of about that long, are enqueued at once, and again for each line of input
//   native       native kernels, if the device runs them
//   formats      tells how many formats of images it may use, how new its OpenCL C is, and how much memory there is
//   count        as told by lines of input: `add` enqueues 1 more for every word, `ask` asks, makes and releases this
//                and that, `look` reads; prints what it read, or `done`
//   flip         pages that are changed and changed back all the time
//   swap         blocks of 32 bytes that are swapped within each page all the time
//   ways [0]     one buffer of 16 MiB, a little of which is written all the time in every way there is; 0: by no kernel
//   state        as told by lines of input: `add` adds 1 to every word of a buffer, `make` makes another, `free`
//                frees that; prints what each word is
#include "subject.hpp"

#include <functional>
#include <map>

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  std::vector<size_t> sizes;
  for (int next = 2; next < argc; ++next) sizes.push_back(std::strtoul(argv[next], nullptr, 10));
  using namespace subject;
  using Given = const Sizes&;
  const std::map<std::string, std::function<void(Given)>> programs{
      {"busy", [](Given given) { busy(given); }},
      {"scattered", scattered},
      {"const",
       [](Given) {
         busy({2, 1, 1}, "sneak");
       }},
      {"scope", [](Given) { scope(); }},
      {"mapped", [](Given) { mapped(); }},
      {"unmapped", [](Given) { unmapped(); }},
      {"lent", [](Given) { lent(); }},
      {"borrowed", [](Given) { borrowed(); }},
      {"callback", [](Given) { callback(); }},
      {"create", [](Given) { create(); }},
      {"rebuild", [](Given) { rebuild(); }},
      {"programs", many_programs},
      {"image", [](Given) { image(); }},
      {"images", [](Given) { images(); }},
      {"clock", [](Given) { clock_goes_on(); }},
      {"enqueue", enqueue},
      {"backlog", backlog},
      {"native", [](Given) { native(); }},
      {"formats", [](Given) { formats(); }},
      {"count", [](Given) { count(); }},
      {"flip", [](Given) { flip(); }},
      {"swap", [](Given) { swap(); }},
      {"ways", ways},
      {"state", [](Given) { state(); }},
  };
  const auto program = programs.find(what);
  if (program != programs.end()) {
    program->second(sizes);
    return 0;
  }
  std::fprintf(stderr, "usage: move_subject PROGRAM [NUMBER...]; programs:");
  for (const auto& [name, run] : programs) std::fprintf(stderr, " %s", name.c_str());
  std::fprintf(stderr, "\n");
  return 2;
}
