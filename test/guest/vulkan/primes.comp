// A sieve in shared memory, each bit set by an atomic.
#version 460
layout(local_size_x = 128) in;
layout(binding = 0) writeonly buffer Answer { uint answer[]; };
shared uint composite[128];
const uint LIMIT = 4096u;

void main() {
  uint lane = gl_LocalInvocationID.x;
  composite[lane] = lane == 0u ? 3u : 0u;
  barrier();
  for (uint p = 2u; p * p < LIMIT; p++) {
    if ((composite[p / 32u] >> (p & 31u) & 1u) == 0u)
      for (uint k = p * (p + lane); k < LIMIT; k += p * 128u) atomicOr(composite[k / 32u], 1u << (k & 31u));
    barrier();
  }
  answer[lane] = ~composite[lane];
}
