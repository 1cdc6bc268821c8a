// The game of life: 16 generations, each a dispatch.
#version 460
layout(local_size_x = 8, local_size_y = 8) in;
layout(push_constant) uniform Push { uint step; };
layout(binding = 0) buffer Cells { uint cells[2][48][64]; };

void main() {
  uint x = gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y, from = step & 1u, around = 0u;
  for (uint k = 0u; k < 9u; k++) if (k != 4u) around += cells[from][(y + 47u + k / 3u) % 48u][x + 63u + k % 3u & 63u];
  cells[1u - from][y][x] = uint(around == 3u || (around == 2u && cells[from][y][x] == 1u));
}
