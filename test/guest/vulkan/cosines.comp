// The cosine transform of 8 by 8 tiles, rows and then columns.
#version 460
layout(local_size_x = 8, local_size_y = 8) in;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) writeonly buffer Answer { float answer[]; };
shared float tile[8][8], half_done[8][8];

void main() {
  uint x = gl_LocalInvocationID.x, y = gl_LocalInvocationID.y, i = gl_WorkGroupID.x * 64u + gl_LocalInvocationIndex;
  tile[y][x] = a[i];
  barrier();
  float sum = 0.0;
  for (uint k = 0u; k < 8u; k++) sum += tile[y][k] * cos(float((2u * k + 1u) * x) * (3.14159265 / 16.0));
  half_done[y][x] = sum;
  barrier();
  sum = 0.0;
  for (uint k = 0u; k < 8u; k++) sum += half_done[k][x] * cos(float((2u * k + 1u) * y) * (3.14159265 / 16.0));
  answer[i] = sum;
}
