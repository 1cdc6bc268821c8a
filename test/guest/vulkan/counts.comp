// Breadth-first search: each dispatch makes the next frontier and the number of workgroups of the next dispatch.
#version 460
layout(local_size_x = 32) in;
layout(push_constant) uniform Push { uint step; };
layout(binding = 0) buffer Counts { uint groups, one, two, done, size[2]; };
layout(binding = 1) readonly buffer Edges { uint edges[]; };
layout(binding = 2) buffer Depth { uint depth[]; };
layout(binding = 3) buffer Frontier { uint frontier[]; };
const uint NODES = 1024u, DEGREE = 3u;

void main() {
  uint me = step & 1u, i = gl_GlobalInvocationID.x;
  if (i < size[me]) {
    uint node = frontier[me * NODES + i];
    for (uint k = 0u; k < DEGREE; k++) {
      uint to = edges[node * DEGREE + k];
      if (atomicCompSwap(depth[to], 0u, step + 2u) == 0u) frontier[(1u - me) * NODES + atomicAdd(size[1u - me], 1u)] = to;
    }
  }
  barrier();
  if (gl_LocalInvocationID.x == 0u) {
    memoryBarrierBuffer();
    if (atomicAdd(done, 1u) == gl_NumWorkGroups.x - 1u) {  // the last workgroup
      memoryBarrierBuffer();
      groups = (atomicAdd(size[1u - me], 0u) + 31u) / 32u;
      size[me] = 0u;
      done = 0u;
    }
  }
}
