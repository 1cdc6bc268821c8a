// Edit distances of words: a table in shared memory, filled along its diagonals.
#version 460
layout(local_size_x = 32) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer B { uint b[]; };
layout(binding = 2) writeonly buffer Answer { uint answer[]; };
shared uint rows[3][33];

void main() {
  uint lane = gl_LocalInvocationID.x, base = gl_WorkGroupID.x * 32u, mine = a[base + lane];
  for (uint d = 0u; d <= 64u; d++) {  // the cells (i, d - i), i = lane + 1
    uint i = lane + 1u, j = d - i, now = d % 3u, before = (d + 2u) % 3u, last = (d + 1u) % 3u;
    if (lane == 0u) rows[now][0] = d;
    if (d == i) rows[now][i] = i;
    else if (d > i && j <= 32u)
      rows[now][i] = min(min(rows[before][i - 1u], rows[before][i]) + 1u, rows[last][i - 1u] + uint(mine != b[base + j - 1u]));
    barrier();
  }
  if (lane == 31u) answer[gl_WorkGroupID.x] = rows[64u % 3u][32];
}
