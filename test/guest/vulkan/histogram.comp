// A histogram of bytes: bins in shared memory, merged in memory.
#version 460
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) buffer Bins { uint bins[256]; };
shared uint mine[256];

void main() {
  uint lane = gl_LocalInvocationID.x, word = a[gl_GlobalInvocationID.x];
  mine[lane] = 0u;
  barrier();
  for (uint k = 0u; k < 4u; k++) atomicAdd(mine[word >> 8u * k & 255u], 1u);
  barrier();
  if (mine[lane] != 0u) atomicAdd(bins[lane], mine[lane]);
}
