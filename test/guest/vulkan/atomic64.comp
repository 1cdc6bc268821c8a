// 64-bit atomics on memory and on shared memory.
#version 460
#extension GL_EXT_shader_atomic_int64 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint64_t a[]; };
layout(binding = 1) buffer Words { uint64_t sum, least, all, any_, odd, most, count; };
shared uint64_t top, tickets;

void main() {
  uint64_t x = a[gl_GlobalInvocationID.x];
  if (gl_LocalInvocationIndex == 0u) top = tickets = 0ul;
  barrier();
  uint64_t seen = top, before;
  do {
    before = seen;
    if (seen >= x) break;
    seen = atomicCompSwap(top, seen, x);
  } while (seen != before);
  atomicAdd(tickets, x >> 40);
  barrier();
  if (gl_LocalInvocationIndex == 0u) {
    atomicMax(most, top);
    atomicAdd(count, tickets);
  }
  atomicAdd(sum, x);
  atomicMin(least, x);
  atomicAnd(all, x | 0xFF00000000ul);
  atomicOr(any_, x & 0xFFFF0000FFFFul);
  atomicXor(odd, x);
}
