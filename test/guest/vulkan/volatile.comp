// A message from one workgroup to the next through memory: data first, then a flag.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) buffer Ticket { uint ticket; };
layout(binding = 1) volatile coherent buffer Flags { uint flags[]; };
layout(binding = 2) coherent buffer Data { uint data[]; };
shared uint group;

void main() {
  uint lane = gl_LocalInvocationID.x;
  if (lane == 0u) group = atomicAdd(ticket, 1u);
  barrier();
  if (group > 0u) while (flags[group - 1u] == 0u);
  memoryBarrierBuffer();
  data[group * 64u + lane] = group == 0u ? lane : data[(group - 1u) * 64u + (lane + 1u & 63u)] * 3u + group;
  memoryBarrierBuffer();
  barrier();
  if (lane == 0u) flags[group] = 1u;
}
