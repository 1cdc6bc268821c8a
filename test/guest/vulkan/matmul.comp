// C = A B by 16 x 16 tiles in shared memory, f32.
#version 460
layout(local_size_x = 16, local_size_y = 16) in;
layout(constant_id = 0) const uint K = 16;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) writeonly buffer C { float c[]; };
shared float left[16][16], right[16][16];

void main() {
  uvec2 at = gl_GlobalInvocationID.xy, here = gl_LocalInvocationID.xy;
  uint N = gl_NumWorkGroups.x * 16u;
  float sum = 0.0;
  for (uint k = 0u; k < K; k += 16u) {
    left[here.y][here.x] = a[at.y * K + k + here.x];
    right[here.y][here.x] = b[(k + here.y) * N + at.x];
    barrier();
    for (uint j = 0u; j < 16u; j++) sum = fma(left[here.y][j], right[j][here.x], sum);
    barrier();
  }
  c[at.y * N + at.x] = sum;
}
