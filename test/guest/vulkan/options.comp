// Prices of options: exponentials, logarithms, roots and a polynomial.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { vec4 a[]; };
layout(binding = 1) writeonly buffer Answer { vec2 answer[]; };

float normal(float x) {
  float t = 1.0 / (1.0 + 0.2316419 * abs(x));
  float tail = 0.39894228 * exp(-0.5 * x * x) * t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))));
  return x < 0.0 ? tail : 1.0 - tail;
}

void main() {
  uint i = gl_GlobalInvocationID.x;
  float price = a[i].x, strike = a[i].y, years = a[i].z, spread = a[i].w, rate = 0.02;
  float d1 = (log(price / strike) + (rate + 0.5 * spread * spread) * years) / (spread * sqrt(years)), d2 = d1 - spread * sqrt(years);
  float call = price * normal(d1) - strike * exp(-rate * years) * normal(d2);
  answer[i] = vec2(call, call + strike * exp(-rate * years) - price);
}
