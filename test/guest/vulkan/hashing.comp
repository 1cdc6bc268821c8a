// A hash table with open addressing: keys that repeat find the same place.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) buffer Table { uvec2 table[1024]; };
layout(binding = 2) buffer Keys { uint keys[1024]; };

void main() {
  uint key = a[gl_GlobalInvocationID.x], place = key * 2654435761u >> 22;
  for (uint probe = 0u; probe < 1024u; probe++, place = (place + 1u) & 1023u) {
    uint found = atomicCompSwap(keys[place], 0u, key);
    if (found == 0u || found == key) {
      atomicAdd(table[place].x, 1u);
      atomicXor(table[place].y, gl_GlobalInvocationID.x);
      break;
    }
  }
}
