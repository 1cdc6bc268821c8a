// A matrix of 64-bit elements transposed by tiles in shared memory.
#version 460
layout(local_size_x = 16, local_size_y = 16) in;
layout(binding = 0) readonly buffer A { uvec2 a[]; };
layout(binding = 1) writeonly buffer Answer { uvec2 answer[]; };
shared uvec2 tile[16][17];

void main() {
  uvec2 size = gl_NumWorkGroups.xy * 16u, at = gl_GlobalInvocationID.xy, here = gl_LocalInvocationID.xy;
  tile[here.y][here.x] = a[at.y * size.x + at.x];
  barrier();
  uvec2 to = gl_WorkGroupID.yx * 16u + here;
  answer[to.y * size.y + to.x] = tile[here.x][here.y];
}
