// Quicksort of a private array, with a private stack of the parts that are left.
#version 460
layout(local_size_x = 32) in;
layout(binding = 0) buffer A { uint a[]; };
const uint COUNT = 24u;

void main() {
  uint base = gl_GlobalInvocationID.x * COUNT, mine[COUNT], from[COUNT], to[COUNT], depth = 1u;
  for (uint k = 0u; k < COUNT; k++) mine[k] = a[base + k];
  from[0] = 0u;
  to[0] = COUNT;
  while (depth > 0u) {
    uint low = from[--depth], high = to[depth], at = low;
    if (high - low < 2u) continue;
    uint pivot = mine[high - 1u];
    for (uint k = low; k < high; k++)
      if (mine[k] < pivot || k == high - 1u) {
        uint t = mine[k];
        mine[k] = mine[at];
        mine[at++] = t;
      }
    from[depth] = low;
    to[depth++] = at - 1u;
    from[depth] = at;
    to[depth++] = high;
  }
  for (uint k = 0u; k < COUNT; k++) a[base + k] = mine[k];
}
