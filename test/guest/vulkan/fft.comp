// Fourier transforms of 256 points in shared memory.
#version 460
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer A { vec2 a[]; };
layout(binding = 1) writeonly buffer Answer { vec2 answer[]; };
shared vec2 line[256];

void main() {
  uint lane = gl_LocalInvocationID.x, base = gl_WorkGroupID.x * 256u;
  for (uint k = 0u; k < 2u; k++) line[bitfieldReverse(lane + 128u * k) >> 24] = a[base + lane + 128u * k];
  for (uint size = 1u; size < 256u; size *= 2u) {
    barrier();
    uint at = lane / size * 2u * size + lane % size;
    float angle = -3.14159265358979 * float(lane % size) / float(size);
    vec2 turn = vec2(cos(angle), sin(angle)), x = line[at], y = line[at + size];
    y = vec2(y.x * turn.x - y.y * turn.y, y.x * turn.y + y.y * turn.x);
    line[at] = x + y;
    line[at + size] = x - y;
  }
  barrier();
  for (uint k = 0u; k < 2u; k++) answer[base + lane + 128u * k] = line[lane + 128u * k];
}
