// The places of eight queens: a search with a stack of bits.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) buffer Found { uint found; };
const uint SIZE = 8u, ALL = (1u << SIZE) - 1u;

void main() {  // an invocation has its own first two rows
  uint i = gl_LocalInvocationIndex, rows[SIZE], left[SIZE], right[SIZE], open[SIZE], count = 0u, depth = 2u;
  uint first = 1u << i % SIZE, second = 1u << i / SIZE;
  if ((second & (first | first << 1 | first >> 1)) != 0u) return;
  rows[2] = first | second;
  left[2] = (first << 1 | second) << 1;
  right[2] = (first >> 1 | second) >> 1;
  open[2] = ALL & ~(rows[2] | left[2] | right[2]);
  while (depth >= 2u) {
    uint free = open[depth];
    if (free == 0u) {
      depth--;
      continue;
    }
    uint bit = free & -free;
    open[depth] = free ^ bit;
    if (depth == SIZE - 1u) {
      count++;
      continue;
    }
    rows[depth + 1u] = rows[depth] | bit;
    left[depth + 1u] = (left[depth] | bit) << 1;
    right[depth + 1u] = (right[depth] | bit) >> 1;
    depth++;
    open[depth] = ALL & ~(rows[depth] | left[depth] | right[depth]);
  }
  atomicAdd(found, count);
}
