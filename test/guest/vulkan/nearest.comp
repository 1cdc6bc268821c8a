// The nearest of 24 points for each of many, and the sums of those that share one.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { ivec2 a[]; };
layout(binding = 1) uniform Points { ivec4 points[24]; };
layout(binding = 2) buffer Sums { ivec4 sums[24]; };

void main() {
  ivec2 x = a[gl_GlobalInvocationID.x];
  int best = 0x7FFFFFFF, chosen = 0;
  for (int k = 0; k < 24; k++) {
    ivec2 way = x - points[k].xy;
    int far = way.x * way.x + way.y * way.y;
    if (far < best) best = far, chosen = k;
  }
  atomicAdd(sums[chosen].x, x.x);
  atomicAdd(sums[chosen].y, x.y);
  atomicAdd(sums[chosen].z, 1);
  atomicMax(sums[chosen].w, best);
}
