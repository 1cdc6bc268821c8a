// A picture of bytes, filtered through tiles in shared memory with a frame around them.
#version 460
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
layout(local_size_x = 16, local_size_y = 16) in;
layout(binding = 0) readonly buffer A { uint8_t a[]; };
layout(binding = 1) writeonly buffer Answer { uint8_t answer[]; };
layout(push_constant) uniform Push { int width, height; };
shared int tile[18][18];

void main() {
  ivec2 at = ivec2(gl_GlobalInvocationID.xy), corner = ivec2(gl_WorkGroupID.xy) * 16 - 1, mine = ivec2(gl_LocalInvocationID.xy);
  for (int k = int(gl_LocalInvocationIndex); k < 324; k += 256) {
    ivec2 from = clamp(corner + ivec2(k % 18, k / 18), ivec2(0), ivec2(width, height) - 1);
    tile[k / 18][k % 18] = int(a[from.y * width + from.x]);
  }
  barrier();
  int x = 0, y = 0;
  for (int k = -1; k <= 1; k++) {
    int weight = 2 - abs(k);
    x += weight * (tile[mine.y + 1 + k][mine.x + 2] - tile[mine.y + 1 + k][mine.x]);
    y += weight * (tile[mine.y + 2][mine.x + 1 + k] - tile[mine.y][mine.x + 1 + k]);
  }
  if (at.x < width && at.y < height) answer[at.y * width + at.x] = uint8_t(min((abs(x) + abs(y)) / 4, 255));
}
