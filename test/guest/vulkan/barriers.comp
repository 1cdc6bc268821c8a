// A workgroup of 1024 whose subgroups hand a line of values on, 24 times.
#version 460
layout(local_size_x = 1024) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };
shared uint line[2][1024];

void main() {
  uint lane = gl_LocalInvocationID.x, i = gl_GlobalInvocationID.x;
  line[0][lane] = a[i];
  for (uint k = 0u; k < 24u; k++) {
    barrier();
    uint x = line[k & 1u][(lane + 37u * k) & 1023u];
    line[~k & 1u][lane] = x * 5u + (lane ^ k);
  }
  barrier();
  answer[i] = line[0][lane];
}
