// 48 KiB of shared memory: a permutation of what a workgroup has read.
#version 460
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };
const uint COUNT = 12288u;
shared uint all[COUNT];

void main() {
  uint lane = gl_LocalInvocationID.x, base = gl_WorkGroupID.x * COUNT;
  for (uint k = lane; k < COUNT; k += 256u) all[k] = a[base + k];
  barrier();
  for (uint k = lane; k < COUNT; k += 256u) answer[base + k] = all[k * 5u % COUNT] + all[COUNT - 1u - k];
}
