// Shortest paths between all nodes: a dispatch for each node in between.
#version 460
layout(local_size_x = 8, local_size_y = 8) in;
layout(push_constant) uniform Push { uint step; };
layout(binding = 0) buffer Ways { uint ways[40][40]; };

void main() {
  uint x = gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y;
  ways[y][x] = min(ways[y][x], ways[y][step] + ways[step][x]);
}
