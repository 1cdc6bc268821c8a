// An ordinary program of CUDA's run time: allocate, copy, launch, event, free. Its calls are recorded, and the time of a
// launch is what the same run of ringup is compared with.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

__global__ void add(unsigned *a, const unsigned *b, unsigned n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		a[i] += b[i];
}

__global__ void nothing(unsigned *a)
{
}

#define CHECK(call) \
	do { \
		cudaError_t error = (call); \
		if (error != cudaSuccess) { \
			std::printf("%s: %s\n", #call, cudaGetErrorString(error)); \
			return 1; \
		} \
	} while (0)

int main()
{
	const unsigned n = 1 << 20, launches = 1000;
	std::vector<unsigned> host(n, 1);
	std::vector<double> times;
	unsigned *a, *b;
	cudaEvent_t event;

	CHECK(cudaMalloc(&a, n * sizeof *a));
	CHECK(cudaMalloc(&b, n * sizeof *b));
	CHECK(cudaMemcpy(a, host.data(), n * sizeof *a, cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(b, host.data(), n * sizeof *b, cudaMemcpyHostToDevice));
	CHECK(cudaEventCreate(&event));
	add<<<n / 256, 256>>>(a, b, n);
	CHECK(cudaEventRecord(event));
	CHECK(cudaEventSynchronize(event));
	CHECK(cudaMemcpy(host.data(), a, n * sizeof *a, cudaMemcpyDeviceToHost));
	for (unsigned i = 0; i < n; i++)
		if (host[i] != 2) {
			std::printf("word %u is %u\n", i, host[i]);
			return 1;
		}
	for (unsigned i = 0; i < launches; i++) {
		auto begin = std::chrono::steady_clock::now();
		nothing<<<1, 32>>>(a);
		CHECK(cudaDeviceSynchronize());
		std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
		times.push_back(took.count());
	}
	std::sort(times.begin(), times.end());
	std::printf("launch_us %.3f\n", times[launches / 2]);
	CHECK(cudaEventDestroy(event));
	CHECK(cudaFree(a));
	CHECK(cudaFree(b));
	return 0;
}
