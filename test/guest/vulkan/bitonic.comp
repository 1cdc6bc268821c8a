// Each step is one pass of a bitonic sort over the whole buffer.
#version 460
layout(local_size_x = 128) in;
layout(push_constant) uniform Push { uint step_; };
layout(binding = 0) buffer A { int a[]; };

void main() {
  uint stage = 0u, pass_ = step_;
  while (pass_ > stage) pass_ -= ++stage;
  uint reach = 1u << (stage - pass_), i = gl_GlobalInvocationID.x;
  uint low = (i & ~(reach - 1u)) << 1 | (i & reach - 1u), high = low | reach;
  bool up = (low >> (stage + 1u) & 1u) == 0u;
  int x = a[low], y = a[high];
  if ((x > y) == up) a[low] = y, a[high] = x;
}
