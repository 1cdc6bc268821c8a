// Thousands of workgroups of one invocation.
#version 460
layout(local_size_x = 1) in;
layout(binding = 0) writeonly buffer Answer { uint answer[]; };

void main() {
  uvec3 group = gl_WorkGroupID;
  answer[(group.z * gl_NumWorkGroups.y + group.y) * gl_NumWorkGroups.x + group.x] = group.x * 2654435761u ^ group.y << 8 ^ group.z;
}
