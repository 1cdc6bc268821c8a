// A stack machine: every lane interprets its own program, so that control flow diverges in every way.
#version 460
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint LENGTH = 32;
layout(binding = 0) readonly buffer Programs { uint programs[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };

uint run(uint i) {
  uint acc = i, other = ~i, fuel = 200u;
  for (uint pc = 0u; pc < LENGTH;) {
    uint word = programs[i * LENGTH + pc], operand = word >> 8;
    if (fuel-- == 0u) return acc ^ 0xDEADu;
    pc++;
    switch (word & 15u) {
      case 0u: acc += operand; break;
      case 1u: acc *= operand | 1u; break;
      case 2u: acc ^= acc >> (operand & 31u); break;
      case 3u: { uint t = acc; acc = other; other = t; break; }
      case 4u:
        for (uint k = operand & 7u; k > 0u; k--) {
          if ((acc & 3u) == 3u) break;
          if ((acc & 1u) == 0u) { acc = acc * 5u + 1u; continue; }
          acc += other + k;
        }
        break;
      case 5u: if (acc > other) return acc - other; break;
      case 6u: pc = (acc & 1u) != 0u ? operand % LENGTH : pc; break;
      case 7u: acc = bitfieldReverse(acc);  // and on
      case 8u: acc -= other; break;
      default: other = other * 3u + (word & 15u);
    }
  }
  return acc + other;
}

void main() { answer[gl_GlobalInvocationID.x] = run(gl_GlobalInvocationID.x); }
