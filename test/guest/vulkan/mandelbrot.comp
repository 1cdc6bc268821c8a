// The Mandelbrot set: how many iterations each point stays near. In f32, every operation rounds separately.
#version 460
layout(local_size_x = 8, local_size_y = 8) in;
layout(push_constant) uniform Push { float left, top, pitch; uint most; };
layout(binding = 0) writeonly buffer Answer { uint answer[]; };

void main() {
  uvec2 at = gl_GlobalInvocationID.xy;
  precise float cx = float(at.x) * pitch, cy = float(at.y) * pitch, x = 0.0, y = 0.0;
  cx += left;
  cy += top;
  uint count = 0u;
  for (; count < most; count++) {
    precise float xx = x * x, yy = y * y, xy = x * y, far = xx + yy;
    if (far > 4.0) break;
    precise float across = xx - yy, twice = xy + xy;
    x = across + cx;
    y = twice + cy;
  }
  answer[at.y * gl_NumWorkGroups.x * 8u + at.x] = count;
}
