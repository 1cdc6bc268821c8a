// Bodies that attract each other: a step reads them from one half of the buffer and writes them to the other.
#version 460
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { uint step_; float dt; };
layout(binding = 0) buffer Places { vec4 places[]; };
layout(binding = 1) buffer Speeds { vec4 speeds[]; };
shared vec4 near[64];

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * 64u, from = (step_ & 1u) * n;
  vec3 here = places[from + i].xyz, pull = vec3(0.0);
  for (uint tile = 0u; tile < gl_NumWorkGroups.x; tile++) {
    near[gl_LocalInvocationID.x] = places[from + tile * 64u + gl_LocalInvocationID.x];
    barrier();
    for (uint k = 0u; k < 64u; k++) {
      vec3 way = near[k].xyz - here;
      float inverse = inversesqrt(dot(way, way) + 0.01);
      pull += way * (near[k].w * inverse * inverse * inverse);
    }
    barrier();
  }
  vec3 speed = speeds[i].xyz + pull * dt;
  speeds[i].xyz = speed;
  places[n - from + i] = vec4(here + speed * dt, places[from + i].w);
}
