#include "move/checkpoint.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/log.hpp"
#include "channel/descriptor.hpp"
#include "move/transplant.hpp"

namespace grus::move {
namespace {

using json = nlohmann::ordered_json;

// The file: the mark, the version, the size of the header, the header (JSON: the session's key, and of each object its
// id and size), its checksum; then what each object holds, and the checksum of that.
constexpr std::array<char, 8> kMark{'G', 'R', 'U', 'S', 'C', 'K', 'P', 'T'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kLongestHeader = std::size_t{256} << 20;

// Tells this session from all others: a checkpoint is of objects that only it has.
const std::string& session_key() {
  static const std::string& key = *new std::string{[] {
    std::random_device random;
    return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
  }()};
  return key;
}

json objects_in(const Inventory& all) {
  json objects = json::array();
  const auto add = [&](const auto& list) {
    json ids = json::array();
    for (const auto& object : list) ids.push_back(object->id().value());
    objects.push_back(std::move(ids));
  };
  add(all.contexts);
  add(all.queues);
  add(all.samplers);
  add(all.memories);
  add(all.programs);
  add(all.kernels);
  return objects;
}

// The file has its name when it is whole.
class Writer {
 public:
  explicit Writer(const std::string& path)
      : path_{path}, part_{path + ".XXXXXX"}, file_{mkostemp(part_.data(), O_CLOEXEC)} {
    if (file_.get() < 0) fail();
  }
  ~Writer() {
    if (file_.get() >= 0 && !is_whole_) unlink(part_.c_str());
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void write(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const char*>(data);
    while (size != 0) {
      const ssize_t written = ::write(file_.get(), bytes, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail();
      bytes += written;
      size -= static_cast<std::size_t>(written);
    }
  }
  void end() {
    if (fsync(file_.get()) != 0 || rename(part_.c_str(), path_.c_str()) != 0) fail();
    is_whole_ = true;
  }

 private:
  [[noreturn]] void fail() const { throw Refused{fmt::format("{}: {}", path_, std::strerror(errno))}; }

  const std::string path_;
  std::string part_;
  const channel::Descriptor file_;
  bool is_whole_ = false;
};

using Checksum = std::array<std::uint64_t, 2>;

Checksum checksum_of(const std::byte* data, std::size_t size) {
  const auto [low, high, none, neither] = memory::fingerprint({data, size}, memory::Kind::xxh3);
  return {low, high};
}

void put_back(const Memory& memory, const Bytes& contents, ObjectId queue) {
  const Placement placement{queue, {}, {}, Blocking::yes};
  Executor& executor = executor_of(*memory.context);
  const cl_int code =
      memory.is_image()
          ? executor.submit(
                command::WriteImage{{memory.id()}, {{0, 0, 0}, memory.image->extent()}, 0, 0, contents.data()},
                placement)
          : executor.submit(command::Write{{memory.id()}, {0, contents.size()}, contents.data()}, placement);
  if (code != CL_SUCCESS)
    throw Refused{
        fmt::format("memory can't be written: OpenCL error {}; what the objects hold is a mixture now", code)};
}

bool is_checkpoint(const std::string& path) {
  std::array<char, 8> mark{};
  return std::ifstream{path, std::ios::binary}.read(mark.data(), mark.size()) && mark == kMark;
}

}  // namespace

void expect_room_for_checkpoint(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) {
    if (errno != ENOENT) throw Refused{fmt::format("{}: {}", path, std::strerror(errno))};
  } else if (!S_ISREG(found.st_mode) || !is_checkpoint(path)) {
    throw Refused{fmt::format("{}: it is there already and no checkpoint, so it isn't overwritten", path)};
  }
}

void write_checkpoint(const std::string& path, const Shelf& shelf, const Inventory& all) {
  const auto contents = shelf.contents();
  json header = {{"session", session_key()}, {"objects", objects_in(all)}, {"memories", json::array()}};
  for (const auto& [id, shelved] : contents) header["memories"].push_back({{"id", id}, {"size", shelved.size}});
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  const auto mark_of = [](const void* data, std::size_t size) {
    return checksum_of(static_cast<const std::byte*>(data), size);
  };
  Writer file{path};
  file.write(kMark.data(), kMark.size());
  file.write(&kVersion, sizeof kVersion);
  file.write(&length, sizeof length);
  file.write(text.data(), text.size());
  auto checksum = mark_of(text.data(), text.size());
  file.write(&checksum, sizeof checksum);
  for (const auto& [id, shelved] : contents) {
    file.write(shelved.memory->data(), shelved.size);
    checksum = mark_of(shelved.memory->data(), shelved.size);
    file.write(&checksum, sizeof checksum);
  }
  file.end();
}

Checkpoint read_checkpoint(const std::string& path, const memory::OnCopied& on_copied) {
  std::ifstream file{path, std::ios::binary};
  if (!file) throw Refused{fmt::format("{}: {}", path, std::strerror(errno))};
  const auto damaged = [&] { return Refused{fmt::format("{}: it is damaged or cut short", path)}; };
  const auto take = [&](void* to, std::size_t size) {
    if (!file.read(static_cast<char*>(to), static_cast<std::streamsize>(size))) throw damaged();
  };
  std::error_code error;
  const auto size_of_file = std::filesystem::file_size(path, error);
  std::array<char, 8> mark{};
  std::uint32_t version = 0;
  std::uint64_t length = 0;
  take(mark.data(), mark.size());
  if (mark != kMark) throw Refused{fmt::format("{}: it is no checkpoint", path)};
  take(&version, sizeof version);
  if (version != kVersion)
    throw Refused{fmt::format("{}: its version is {}, this Grus reads {}", path, version, kVersion)};
  take(&length, sizeof length);
  if (length > kLongestHeader) throw damaged();
  std::string text(length, '\0');
  take(text.data(), length);
  Checksum told{};
  take(&told, sizeof told);
  if (told != checksum_of(reinterpret_cast<const std::byte*>(text.data()), text.size())) throw damaged();
  Checkpoint checkpoint;
  const json header = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object() || !header.contains("objects") || !header.contains("memories") ||
      !header["memories"].is_array())
    throw damaged();
  if (header.value("session", "") != session_key())
    throw Refused{fmt::format("{}: it is a checkpoint of another session", path)};
  checkpoint.objects = header["objects"].dump();
  for (const json& entry : header["memories"]) {
    if (!entry.is_object() || !entry.value("id", json{}).is_number_unsigned() ||
        !entry.value("size", json{}).is_number_unsigned() || entry["size"].get<std::size_t>() > size_of_file)
      throw damaged();
    Bytes bytes(entry["size"].get<std::size_t>());
    take(bytes.data(), bytes.size());
    take(&told, sizeof told);
    if (told != checksum_of(bytes.data(), bytes.size())) throw damaged();
    on_copied({.read = bytes.size()});
    checkpoint.contents.emplace(entry["id"].get<std::uint64_t>(), std::move(bytes));
  }
  if (file.peek() != std::ifstream::traits_type::eof()) throw damaged();
  return checkpoint;
}

void check_fits(const Checkpoint& checkpoint, const Inventory& all) {
  if (objects_in(all).dump() != checkpoint.objects)
    throw Refused{"objects were made or freed since the checkpoint, so it fits the session no longer"};
}

void put_back(const Checkpoint& checkpoint, const Inventory& all, const memory::OnCopied& on_copied) {
  std::map<const Context*, Ref<Queue>> queues;
  for (const auto& context : all.contexts) {
    auto queue = Ref<Queue>::adopt(slab<Queue>().create(*context, *context->devices[0]));
    if (executor_of(*context).create_queue(queue->id(), context->id(), context->devices[0]->id(), {}) != CL_SUCCESS)
      throw Refused{"there is no queue to copy with"};
    queue->created = true;
    queues.emplace(context.get(), std::move(queue));
  }
  for (const auto& memory : all.memories) {
    const auto contents = checkpoint.contents.find(memory->id().value());
    if (contents == checkpoint.contents.end()) continue;
    put_back(*memory, contents->second, queues.at(memory->context.get())->id());
    memory->touch();
    on_copied({.read = contents->second.size(), .sent = contents->second.size()});
  }
}

}  // namespace grus::move
