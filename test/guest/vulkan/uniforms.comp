// A uniform buffer: matrices by rows and by columns, a table that lanes index apart.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) uniform Table { mat4 columns; layout(row_major) mat4 rows; mat3 small; uvec4 table[64]; };
layout(binding = 1) writeonly buffer Answer { vec4 answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * 64u;
  uvec4 word = table[i * 7u & 63u];
  vec4 x = vec4(word & 15u) - 7.0;
  answer[i] = columns * x;
  answer[n + i] = rows * x;
  answer[2 * n + i] = vec4(small * x.xyz, float(word[i & 3u] & 255u));
}
