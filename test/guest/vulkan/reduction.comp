// The sum of all numbers: a tree in shared memory for each workgroup, then an atomic addition.
#version 460
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) buffer Total { uint total, of_group[]; };
shared uint part[256];

void main() {
  uint i = gl_LocalInvocationID.x;
  part[i] = a[gl_GlobalInvocationID.x * 2u] + a[gl_GlobalInvocationID.x * 2u + 1u];
  for (uint half_ = 128u; half_ > 0u; half_ >>= 1) {
    barrier();
    if (i < half_) part[i] += part[i + half_];
  }
  if (i == 0u) {
    of_group[gl_WorkGroupID.x] = part[0];
    atomicAdd(total, part[0]);
  }
}
