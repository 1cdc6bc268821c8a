// Atomic operations on memory and on shared memory: 32 and 64 bits, integers and floats, with and without the old value.
#version 460
#extension GL_EXT_shader_atomic_int64 : require
#extension GL_EXT_shader_atomic_float : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) buffer Words { uint sum, least, most, all, any_, odd, tickets, chain; int low, high; float whole, pad; };
layout(binding = 2) buffer Wide { uint64_t wide_sum, wide_most, wide_any, wide_swaps; };
layout(binding = 3) writeonly buffer Taken { uint taken[]; };
layout(binding = 4) buffer Histogram { uint histogram[64]; };
shared uint bins[64];
shared uint last;
shared float local_sum;
shared uint64_t local_wide;

void main() {
  uint i = gl_GlobalInvocationID.x, lane = gl_LocalInvocationID.x, x = a[i];
  if (lane < 64u) bins[lane] = 0u;
  if (lane == 0u) last = 0u, local_sum = 0.0, local_wide = 0ul;
  barrier();
  atomicAdd(bins[x & 63u], 1u);
  atomicMax(last, x);
  atomicAdd(local_sum, float(x & 7u));
  atomicAdd(local_wide, uint64_t(x) << 20);
  barrier();
  if (lane < 64u) atomicAdd(histogram[lane], bins[lane]);
  if (lane == 0u) {
    atomicMax(most, last);
    atomicAdd(whole, local_sum);
    atomicAdd(wide_sum, local_wide);
  }
  atomicAdd(sum, x);
  atomicMin(least, x);
  atomicAnd(all, x | 0xFFu);
  atomicOr(any_, x & 0xFF00FFu);
  atomicXor(odd, x);
  atomicMin(low, int(x));
  atomicMax(high, int(x));
  atomicMax(wide_most, uint64_t(x) * uint64_t(x));
  atomicOr(wide_any, 1ul << (x & 63u));
  taken[i] = atomicAdd(tickets, 1u);
  uint seen = chain, before;  // additions by compare and swap
  do {
    before = seen;
    seen = atomicCompSwap(chain, before, before + (x & 15u));
  } while (seen != before);
  uint64_t wide = wide_swaps, wide_before;
  do {
    wide_before = wide;
    wide = atomicCompSwap(wide_swaps, wide_before, wide_before + 0x100000001ul);
  } while (wide != wide_before);
}
