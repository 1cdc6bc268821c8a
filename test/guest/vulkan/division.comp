// Integer division, by values from a buffer and by constants. The hardware has no instruction for it.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer B { uint b[]; };
layout(binding = 2) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  uint x = a[i], y = b[i];
  int s = int(x), t = int(y);
  answer[i] = x / y;
  answer[n + i] = x % y;
  answer[2 * n + i] = uint(s / t);
  answer[3 * n + i] = uint(s - s / t * t);
  answer[4 * n + i] = x / 7u;
  answer[5 * n + i] = x % 10u;
  answer[6 * n + i] = x / 641u;
  answer[7 * n + i] = uint(s / -7);
  answer[8 * n + i] = uint(s / 16);
  answer[9 * n + i] = x / (gl_WorkGroupID.x + 3u);
}
