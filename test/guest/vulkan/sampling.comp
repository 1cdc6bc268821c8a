// Textures of several formats with several samplers, at places and levels of detail from a buffer.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer Places { vec4 places[]; };
layout(binding = 1) writeonly buffer Answer { vec4 answer[]; };
layout(binding = 2) uniform sampler2D a;
layout(binding = 3) uniform sampler2D b;
layout(binding = 4) uniform sampler2D c;
layout(binding = 5) uniform sampler2D d;
layout(binding = 6) uniform sampler2D e;
layout(binding = 7) uniform sampler2D f;

void main() {
  uint i = gl_GlobalInvocationID.x, count = gl_NumWorkGroups.x * 64u;
  vec2 at = places[i].xy;
  float lod = places[i].z;
  answer[i] = textureLod(a, at, lod);
  answer[count + i] = textureLod(b, at, lod);
  answer[2u * count + i] = textureLod(c, at, lod);
  answer[3u * count + i] = textureLod(d, at, lod);
  answer[4u * count + i] = textureLod(e, at, lod);
  answer[5u * count + i] = textureLod(f, at, lod);
}
