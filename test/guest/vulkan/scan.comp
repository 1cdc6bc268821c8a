// A prefix sum in shared memory: a barrier before and after each step.
#version 460
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };
shared uint line[256];

void main() {
  uint i = gl_GlobalInvocationID.x, lane = gl_LocalInvocationID.x;
  line[lane] = a[i];
  for (uint by = 1u; by < 256u; by *= 2u) {
    barrier();
    uint below = lane >= by ? line[lane - by] : 0u;
    barrier();
    line[lane] += below;
  }
  answer[i] = line[lane];
}
