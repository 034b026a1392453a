// Entry points: building, compiling and linking programs.
#include "api/build.hpp"

#include <algorithm>
#include <optional>

#include "api/call.hpp"
#include "api/check.hpp"
#include "command/callbacks.hpp"
#include "command/held_builds.hpp"
#include "objects/immovable.hpp"
#include "objects/program_scope.hpp"

namespace grus::api {
namespace {

using Notify = void(CL_CALLBACK*)(cl_program, void*);

BuildOrder order_for(const Program& program, BuildOrder::Step step, std::string options) {
  BuildOrder order = grus::order_for(program);
  order.step = step;
  order.options = std::move(options);
  return order;
}

// The devices to build for; none named means all of the program's.
cl_int choose_devices(const Program& program, cl_uint count, const cl_device_id* handles, BuildOrder& order) {
  if ((count == 0) != (handles == nullptr)) return CL_INVALID_VALUE;
  for (cl_uint next = 0; next < count; ++next) {
    const Device* device = live<Device>(handles[next]);
    if (!device || std::none_of(program.devices.begin(), program.devices.end(),
                                [&](const auto& own) { return own.get() == device; })) {
      return CL_INVALID_DEVICE;
    }
    order.devices.push_back(device->id());
  }
  return CL_SUCCESS;
}

void note_program_scope_variables(const Recipe& recipe, const std::string& options) {
  const bool found = recipe.origin == ProgramOrigin::il ? has_program_scope_variables(recipe.il)
                                                        : has_program_scope_variables(recipe.source, options);
  if (!found) return;
  note_immovable("a program has program-scope variables, whose memory can't be read back from the device");
}

// While one of these lives the program is being built, and nobody else builds it or makes kernels of it.
class Building {
 public:
  explicit Building(Program& program) : program_{program} {
    const std::lock_guard lock{program.mutex};
    is_first_ = !std::exchange(program.building, true);
  }
  ~Building() {
    if (!is_first_) return;
    const std::lock_guard lock{program_.mutex};
    program_.building = false;
  }
  Building(const Building&) = delete;
  Building& operator=(const Building&) = delete;
  explicit operator bool() const { return is_first_; }

 private:
  Program& program_;
  bool is_first_;
};

std::shared_ptr<const Recipe> recipe_of(Program& program) {
  const std::lock_guard lock{program.mutex};
  return program.recipe;
}

// Runs the order outside the gate: builds take long, and call back into nothing of Grus's.
cl_int carry_out(Program& program, BuildOrder order) {
  const Building building{program};
  if (!building) return CL_INVALID_OPERATION;
  if (!order.recipe) order.recipe = recipe_of(program);
  note_program_scope_variables(*order.recipe, order.options);
  BuildOutcome outcome;
  std::optional<BuildAgain> again;
  for (bool is_moved = true; is_moved;) {
    const Pin pin{executor_of(*program.context)};
    {
      const Gate::Leave leave{Gate::Place::waiting};
      try {
        outcome = pin->build(order);
      } catch (const std::bad_alloc&) {
        outcome.code = CL_OUT_OF_HOST_MEMORY;
      }
    }
    HeldBuilds::wait();
    is_moved = &*pin != &executor_of(*program.context);  // meanwhile: so it is built where the session is now
    if (is_moved && !again) again.emplace();  // before the source is let go of, for whose sake the move lasts
  }
  const std::lock_guard lock{program.mutex};
  const cl_int code = outcome.code;
  if (outcome.created) {
    program.accept(std::move(outcome));
    program.recipe = order.recipe;
  }
  return code;
}

void notify_later(Notify notify, Program& program, void* user_data) {
  if (!notify) return;
  callbacks::post(
      [notify, user_data, alive = Ref{&program}] { notify(reinterpret_cast<cl_program>(alive.get()), user_data); });
}

}  // namespace

cl_int compile_again(Program& program) {
  auto order = order_for(program, BuildOrder::Step::compile, program.recipe->options);
  return carry_out(program, std::move(order));
}

cl_int clBuildProgram(cl_program handle, cl_uint count, const cl_device_id* handles, const char* options, Notify notify,
                      void* user_data) {
  Program* program = live<Program>(handle);
  if (!program) return CL_INVALID_PROGRAM;
  if (!notify && user_data) return CL_INVALID_VALUE;
  const Ref<Program> alive{program};
  auto order = order_for(*program, BuildOrder::Step::build, options ? options : "");
  if (const cl_int code = choose_devices(*program, count, handles, order); code != CL_SUCCESS) return code;
  if (program->kernels.load(std::memory_order_relaxed) != 0) return CL_INVALID_OPERATION;
  Recipe recipe = *recipe_of(*program);
  // A program that came as a binary for another device is built as it was built there.
  if (program->from_binary && recipe.origin != ProgramOrigin::binary) order.options = recipe.options;
  recipe.options = order.options;
  order.recipe = std::make_shared<const Recipe>(std::move(recipe));
  const cl_int code = carry_out(*program, std::move(order));
  notify_later(notify, *program, user_data);
  return code;
}

cl_int clCompileProgram(cl_program handle, cl_uint count, const cl_device_id* handles, const char* options,
                        cl_uint header_count, const cl_program* headers, const char** names, Notify notify,
                        void* user_data) {
  Program* program = live<Program>(handle);
  if (!program) return CL_INVALID_PROGRAM;
  if (!notify && user_data) return CL_INVALID_VALUE;
  if (header_count == 0 ? headers || names : !headers || !names) return CL_INVALID_VALUE;
  const Ref<Program> alive{program};
  auto order = order_for(*program, BuildOrder::Step::compile, options ? options : "");
  if (const cl_int code = choose_devices(*program, count, handles, order); code != CL_SUCCESS) return code;
  if (program->kernels.load(std::memory_order_relaxed) != 0) return CL_INVALID_OPERATION;
  Recipe recipe = *recipe_of(*program);
  if (recipe.origin != ProgramOrigin::source && recipe.origin != ProgramOrigin::il) return CL_INVALID_OPERATION;
  recipe.headers.clear();
  recipe.options = order.options;
  recipe.compiled_only = true;
  for (cl_uint next = 0; next < header_count; ++next) {
    Program* header = live<Program>(headers[next]);
    if (!header) return CL_INVALID_PROGRAM;
    if (header->context.get() != program->context.get()) return CL_INVALID_CONTEXT;
    if (!names[next]) return CL_INVALID_VALUE;
    recipe.headers.push_back({names[next], recipe_of(*header)});
  }
  order.recipe = std::make_shared<const Recipe>(std::move(recipe));
  const cl_int code = carry_out(*program, std::move(order));
  notify_later(notify, *program, user_data);
  return code;
}

Result<cl_program> clLinkProgram(cl_context handle, cl_uint count, const cl_device_id* handles, const char* options,
                                 cl_uint input_count, const cl_program* inputs, Notify notify, void* user_data) {
  Context* context = live<Context>(handle);
  if (!context) return Failure{CL_INVALID_CONTEXT};
  if ((!notify && user_data) || (count == 0) != (handles == nullptr) || input_count == 0 || !inputs)
    return Failure{CL_INVALID_VALUE};
  auto program = Ref<Program>::adopt(slab<Program>().create(*context));
  for (cl_uint next = 0; next < count; ++next) {
    Device* device = live<Device>(handles[next]);
    if (!device || !context->has(*device)) return Failure{CL_INVALID_DEVICE};
    program->devices.emplace_back(device);
  }
  if (count == 0) program->devices = context->devices;
  program->builds.resize(program->devices.size());
  Recipe recipe;
  recipe.origin = ProgramOrigin::linked;
  recipe.options = options ? options : "";
  auto order = order_for(*program, BuildOrder::Step::link, recipe.options);
  order.devices = order.program_devices;
  std::vector<Ref<Program>> alive;
  for (cl_uint next = 0; next < input_count; ++next) {
    Program* input = live<Program>(inputs[next]);
    if (!input) return Failure{CL_INVALID_PROGRAM};
    if (input->context.get() != context) return Failure{CL_INVALID_CONTEXT};
    const std::lock_guard lock{input->mutex};
    if (!input->created) return Failure{CL_INVALID_OPERATION};  // neither compiled nor a binary
    recipe.inputs.push_back(input->recipe->fallback ? input->recipe->fallback : input->recipe);
    order.inputs.push_back(input->id());
    alive.emplace_back(input);
  }
  order.recipe = std::make_shared<const Recipe>(std::move(recipe));
  const cl_int code = carry_out(*program, std::move(order));
  // Whoever asked to be told gets the program, whose log says why it failed: OpenCL 3.0 §5.8.3.
  if (code != CL_SUCCESS && !(notify && program->created)) return Failure{code};
  notify_later(notify, *program, user_data);
  return reinterpret_cast<cl_program>(program.hand_out());
}

}  // namespace grus::api
