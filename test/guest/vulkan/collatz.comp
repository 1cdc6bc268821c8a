// Loops that end at a different iteration in each lane.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, x = i + 1u, steps = 0u;
  while (x != 1u) {
    x = (x & 1u) != 0u ? 3u * x + 1u : x >> 1;
    steps++;
  }
  answer[i] = steps;
}
