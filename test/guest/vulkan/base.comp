// A dispatch whose workgroups do not begin at 0.
#version 460
layout(local_size_x = 4, local_size_y = 4) in;
layout(binding = 0) buffer Answer { uint answer[]; };

void main() {
  uvec3 i = gl_GlobalInvocationID;
  answer[i.z * 1024u + i.y * 32u + i.x] = gl_WorkGroupID.x | gl_WorkGroupID.y << 8 | gl_WorkGroupID.z << 16 | gl_NumWorkGroups.x << 24;
}
