// A big grid of three dimensions: counts the position that each invocation reads, and writes a word for each workgroup.
#version 460
layout(local_size_x = 4, local_size_y = 8, local_size_z = 2) in;
layout(binding = 0) buffer Table { uint table[1024]; };
layout(binding = 1) writeonly buffer Groups { uint of_group[]; };

void main() {
  uvec3 at = gl_GlobalInvocationID, group = gl_WorkGroupID, size = gl_NumWorkGroups * gl_WorkGroupSize;
  uint linear = (at.z * size.y + at.y) * size.x + at.x;
  atomicAdd(table[(linear * 2654435761u) >> 22], linear);
  if (gl_LocalInvocationIndex == 63u) of_group[(group.z * gl_NumWorkGroups.y + group.y) * gl_NumWorkGroups.x + group.x] = linear ^ 0x5A5A5A5Au;
}
