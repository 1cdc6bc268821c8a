// 32-bit atomics on memory and on shared memory whose old values are used.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) buffer Words { uint words[8]; };
layout(binding = 2) writeonly buffer Old { uint old[]; };
shared uint mine[8];

void main() {
  uint i = gl_GlobalInvocationID.x, lane = gl_LocalInvocationID.x, n = gl_NumWorkGroups.x * 64u, x = a[i];
  if (lane < 8u) mine[lane] = lane == 1u || lane == 3u ? ~0u : 0u;
  barrier();
  atomicAdd(mine[0], x);
  atomicMin(mine[1], x);
  atomicMax(mine[2], x);
  atomicAnd(mine[3], x | 0xFu);
  atomicOr(mine[4], x & 0xF0F0u);
  atomicXor(mine[5], x);
  old[i] = atomicAdd(mine[6], 3u);
  uint seen = mine[7], before;
  do seen = atomicCompSwap(mine[7], before = seen, seen + (x & 7u)); while (seen != before);
  barrier();
  if (lane == 0u) {
    atomicAdd(words[0], mine[0]);
    atomicMin(words[1], mine[1]);
    atomicMax(words[2], mine[2]);
    atomicAnd(words[3], mine[3]);
    atomicOr(words[4], mine[4]);
    atomicXor(words[5], mine[5]);
    atomicAdd(words[7], mine[7]);
  }
  old[n + i] = atomicExchange(words[6], i + 1u);
}
