// Specialisation constants that decide sizes of arrays, trips of loops and branches.
#version 460
layout(local_size_x_id = 0, local_size_y_id = 1) in;
layout(constant_id = 2) const uint LENGTH = 4;
layout(constant_id = 3) const uint KIND = 0;
layout(constant_id = 4) const float SCALE = 1.0;
layout(constant_id = 5) const int SHIFT = 0;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };
shared uint line[LENGTH * 16u];

void main() {
  uint lane = gl_LocalInvocationIndex, size = gl_WorkGroupSize.x * gl_WorkGroupSize.y, i = gl_WorkGroupID.x * size + lane;
  for (uint k = lane; k < LENGTH * 16u; k += size) line[k] = a[k] >> SHIFT;
  barrier();
  uint sum = 0u;
  for (uint k = 0u; k < LENGTH; k++)
    if (KIND == 0u) sum += line[(lane + k) % (LENGTH * 16u)];
    else if (KIND == 1u) sum ^= line[(lane + k) % (LENGTH * 16u)] * (k + 1u);
    else sum |= line[k];
  answer[i] = sum + uint(float(i) * SCALE);
}
