"""pyopencl: arrays, element-wise kernels, reductions, scans, images, events, sub-buffers, local memory, mapping.

usage: pyopencl_arrays.py [COUNT]
Each step is checked against numpy; prints one line per step with a checksum of its result.
"""
import sys
import threading
import zlib

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from pyopencl.elementwise import ElementwiseKernel
from pyopencl.reduction import ReductionKernel
from pyopencl.scan import InclusiveScanKernel

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
WRONG = []


def report(name, ours, expected):
    ours = np.ascontiguousarray(ours)
    good = np.allclose(ours, expected, rtol=1e-5, atol=1e-6)
    if not good:
        WRONG.append(name)
    print(f"{name} {zlib.crc32(ours.tobytes()):08x}{'' if good else ' WRONG'}", flush=True)


def arrays(context, queue, x, y):
    dx, dy = cl_array.to_device(queue, x), cl_array.to_device(queue, y)
    report("array arithmetic", (2 * dx + dy * dy - 3).get(), 2 * x + y * y - 3)
    report("array slice", dx[5:COUNT // 2].get(), x[5:COUNT // 2])
    blend = ElementwiseKernel(context, "float a, float *x, float *y, float *z", "z[i] = a * x[i] + (1 - a) * y[i]")
    dz = cl_array.empty_like(dx)
    blend(np.float32(0.25), dx, dy, dz)
    report("element-wise", dz.get(), 0.25 * x + 0.75 * y)


def reductions(context, queue, n):
    dn = cl_array.to_device(queue, n)
    report("array sum", cl_array.sum(dn).get(), n.sum())
    report("array maximum", cl_array.max(dn).get(), n.max())
    squares = ReductionKernel(context, np.int64, neutral="0", reduce_expr="a+b", map_expr="(long)x[i]*x[i]",
                              arguments="__global int *x")
    report("reduction", squares(dn).get(), (n.astype(np.int64) ** 2).sum())


def scans(context, queue, n):
    scanned = cl_array.to_device(queue, n)
    InclusiveScanKernel(context, np.int32, "a+b", neutral="0")(scanned)
    report("scan", scanned.get(), np.cumsum(n, dtype=np.int32))


KERNELS = """
__constant sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
__kernel void flip(__read_only image2d_t in, __write_only image2d_t out) {
  const int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imagef(out, (int2)(get_image_width(in) - 1 - at.x, at.y), read_imagef(in, nearest, at));
}
__kernel void add(__global int *x, const int by) { x[get_global_id(0)] += by; }
__kernel void group_sums(__global const int *x, __global int *sums, __local int *room) {
  const int i = get_local_id(0);
  room[i] = x[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (i == 0) {
    int sum = 0;
    for (int k = 0; k < get_local_size(0); ++k) sum += room[k];
    sums[get_group_id(0)] = sum;
  }
}
"""


def images(context, queue, program):
    pixels = np.arange(24 * 16 * 4, dtype=np.uint32).astype(np.uint8).reshape(16, 24, 4)
    layout = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.UNORM_INT8)
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    source = cl.Image(context, flags, layout, shape=(24, 16), hostbuf=pixels)
    target = cl.Image(context, cl.mem_flags.WRITE_ONLY, layout, shape=(24, 16))
    program.flip(queue, (24, 16), None, source, target)
    back = np.empty_like(pixels)
    cl.enqueue_copy(queue, back, target, origin=(0, 0), region=(24, 16))
    report("image", back, pixels[:, ::-1])


def events(context, queue, program, n):
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, n.nbytes)
    gate, called = cl.UserEvent(context), threading.Event()
    written = cl.enqueue_copy(queue, buffer, n, is_blocking=False, wait_for=[gate])
    added = program.add(queue, n.shape, None, buffer, np.int32(7), wait_for=[written])
    added.set_callback(cl.command_execution_status.COMPLETE, lambda status: called.set())
    gate.set_status(cl.command_execution_status.COMPLETE)
    back = np.empty_like(n)
    cl.enqueue_copy(queue, back, buffer, wait_for=[added])
    report("events", back, n + 7)
    profile = added.profile
    report("event times", profile.queued <= profile.submit <= profile.start <= profile.end, True)
    report("event callback", called.wait(timeout=60), True)  # it may come a little after the copy


def sub_buffers(context, queue, program, n):
    align = queue.device.mem_base_addr_align // 8
    start, size = align, 4 * align
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=n)
    part = buffer.get_sub_region(start, size, cl.mem_flags.READ_WRITE)
    program.add(queue, (size // 4,), None, part, np.int32(1000))
    back, expected = np.empty_like(n), n.copy()
    expected[start // 4:(start + size) // 4] += 1000
    cl.enqueue_copy(queue, back, buffer)
    report("sub-buffer", back, expected)


def local_memory_and_maps(context, queue, program, n):
    buffer = cl.Buffer(context, cl.mem_flags.READ_ONLY | cl.mem_flags.ALLOC_HOST_PTR, n.nbytes)
    mapped, _ = cl.enqueue_map_buffer(queue, buffer, cl.map_flags.WRITE, 0, n.shape, n.dtype)
    mapped[:] = n
    mapped.base.release(queue)
    sums = cl_array.zeros(queue, n.size // 16, np.int32)
    program.group_sums(queue, n.shape, (16,), buffer, sums.data, cl.LocalMemory(16 * 4))
    report("local memory", sums.get(), n.reshape(-1, 16).sum(axis=1))


def main():
    device = cl.get_platforms()[0].get_devices()[0]
    context = cl.Context([device])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    print(f"device {device.name}", flush=True)
    steps = np.arange(COUNT)
    x, y = np.sin(steps).astype(np.float32), np.cos(steps).astype(np.float32)
    n = ((steps * 7919) % 1009 - 500).astype(np.int32)
    program = cl.Program(context, KERNELS).build()
    arrays(context, queue, x, y)
    reductions(context, queue, n)
    scans(context, queue, n)
    images(context, queue, program)
    events(context, queue, program, n)
    sub_buffers(context, queue, program, n)
    local_memory_and_maps(context, queue, program, n)
    return 1 if WRONG else 0


sys.exit(main())
