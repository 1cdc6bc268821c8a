// Runs compute shaders through Vulkan 1.3, one after the other, and writes their results.
//
//     dispatch SHADER.spv [OPTION]... [-- SHADER.spv [OPTION]...]...
//     dispatch matrices [device=WORD]     print the shapes and types of cooperative matrices that the device offers
//
//     in=FILE          a storage buffer with a file's bytes; buffers have bindings 0, 1, ... of set 0 in the order of their options
//     zero=BYTES       a storage buffer of zeros
//     uniform=FILE     a uniform buffer with a file's bytes
//     image=USE,VIEW,FORMAT,WIDTH,HEIGHT,DEPTH,LAYERS,LEVELS,SWIZZLE
//                      the buffer named last is an image with its bytes, level by level, and layer by layer in each: USE 0 a storage
//                      image, 1 one with a sampler; numbers of VkImageViewType and VkFormat; for SWIZZLE four digits of VkComponentSwizzle
//     sampler=MAG,MIN,MIP,WRAP,BORDER,COMPARE
//                      its sampler: numbers of VkFilter, VkSamplerMipmapMode, VkSamplerAddressMode, VkBorderColor; COMPARE: one above
//                      VkCompareOp, 0 for none; default: the nearest texel, of a repeated image
//     texels=USE,FORMAT
//                      the buffer named last is a texel buffer: USE 0 for storage, 1 uniform
//     array=N          the N buffers named last are the elements of one binding
//     out=FILE         at the end, append the buffer named last to a file
//     groups=X,Y,Z     workgroups; default 1,1,1
//     base=X,Y,Z       the number of the first workgroup; default 0,0,0
//     indirect=1       the device reads the number of workgroups from a buffer
//     counts=BINDING   from the second dispatch on, the device reads the number of workgroups from the start of that buffer
//     steps=N          dispatch N times, each after the one before
//     push=ITEM,...    push constants: u32:N u64:N f32:X f64:X, address:BUFFER (u64) or step (u32, 0 to N - 1)
//     spec=ID:N,...    specialisation constants of 32 bits
//     wave=32|64       the subgroup size; every subgroup must be full
//     queue=compute    use a queue family without graphics; default: one with graphics
//     device=WORD      a word of the device's name; default RADV. The first job's counts for all.
//     wait=SECONDS     how long to wait for the device; default 60
//
// Buffers are in device memory. Copies on the same queue fill them from host memory and read them back. Reading back is
// a separate submission, if there is any: drivers report a failed job when the next one is submitted.
// Each job's number and shader are printed on standard error before it, and after it how long it took and how much of
// that the compiler took.
// Exit status: 0, or 1 with one line on standard error; 3: the device did not finish in time; 4: the device was lost. The
// first job that fails is the last one.

// for the clock
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <vulkan/vulkan.h>

enum { MOST = 16, MOST_JOBS = 256, BLOCK_BYTES = 16 << 20, PUSH_BYTES = 128, TIMED_OUT = 3, LOST = 4 };

static const uint32_t NOWHERE = ~0u;

struct buffer {
  const char *in, *out;
  VkDeviceSize size;
  VkDescriptorType type;
  uint32_t elements;  // of the binding that starts here; 0: it belongs to the binding before
  VkBuffer device, staging;
  void *mapped;
  uint32_t about[9], sampling[6];  // of an image and its sampler, as in the options
  VkFormat texels;
  VkImage image;
  VkImageView view;
  VkSampler sampler;
  VkBufferView texel_view;
};
enum { USE, VIEW, FORMAT, WIDTH, HEIGHT, DEPTH, LAYERS, LEVELS, SWIZZLE };
enum { MAG, MIN, MIP, WRAP, BORDER, COMPARE };

// Memory of one kind that the jobs use one after the other. To allocate is slow where accesses to the card are.
struct pool {
  VkMemoryPropertyFlags wanted;
  struct block { VkDeviceMemory memory; VkDeviceSize size; char *mapped; } blocks[MOST];
  uint32_t count, at;
  VkDeviceSize used;
};

struct job {
  const char *shader, *name, *push;
  struct buffer buffers[MOST];
  uint32_t buffer_count, groups[3], base[3], steps, wave, spec_count, counts_from, family;
  uint32_t spec[MOST];
  VkSpecializationMapEntry spec_map[MOST];
  bool indirect, compute_only;
  double wait_s, compiling_s;
  struct buffer counts;
  VkDescriptorSetLayout set_layout;
  VkDescriptorPool descriptors;
  VkPipelineLayout layout;
  VkPipeline pipeline;
  VkCommandPool commands;
};

static VkInstance instance;
static VkPhysicalDevice physical;
static VkDevice device;
static struct pool device_pool = {.wanted = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT}, image_pool = {.wanted = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT};
// cached: what is read back would else come byte by byte over the bus
static struct pool staging_pool = {
  .wanted = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
};

__attribute__((noreturn, format(printf, 2, 3))) static void quit(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("dispatch: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(status);
}

static void check(VkResult result, const char *what) {
  if (result == VK_ERROR_DEVICE_LOST) quit(LOST, "%s: the device was lost", what);
  if (result == VK_TIMEOUT) quit(TIMED_OUT, "%s: not done in time", what);
  if (result != VK_SUCCESS) quit(1, "%s: VkResult %d", what, result);
}
#define DO(call, ...) check(call(__VA_ARGS__), #call)

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

static void *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) quit(1, "%s: %s", path, strerror(errno));
  *size = ftell(file);
  rewind(file);
  void *bytes = malloc(*size + 1);
  if (!bytes || fread(bytes, 1, *size, file) != *size) quit(1, "%s: cannot be read", path);
  fclose(file);
  return bytes;
}

static uint64_t number(const char *text, char **end) {
  errno = 0;
  uint64_t value = strtoull(text, end, 0);
  if (*end == text || errno) quit(1, "not a number: %s", text);
  return value;
}

static void parse_numbers(uint32_t *numbers, uint32_t count, const char *text) {
  char *end;
  for (uint32_t i = 0; i < count; i++, text = *end == ',' ? end + 1 : end) numbers[i] = number(text, &end);
  if (*text) quit(1, "what is %s?", text);
}

static void parse_groups(uint32_t *groups, const char *text) {
  char *end;
  for (int i = 0; i < 3; i++, text = *end == ',' ? end + 1 : end) groups[i] = number(text, &end);
}

// Makes one binding of the last `count` buffers.
static void join(struct job *job, uint32_t count) {
  if (!count || count > job->buffer_count) quit(1, "array=%u of %u buffers", count, job->buffer_count);
  struct buffer *first = &job->buffers[job->buffer_count - count];
  for (uint32_t i = 0; i < count; i++) first[i].elements = i ? 0 : count;
}

static void parse_spec(struct job *job, const char *text) {
  for (char *end; *text; text = *end ? end + 1 : end) {
    uint32_t i = job->spec_count++, id = number(text, &end);
    if (i == MOST || *end != ':') quit(1, "spec=: at %s", text);
    job->spec[i] = number(end + 1, &end);
    job->spec_map[i] = (VkSpecializationMapEntry){id, i * 4, 4};
  }
}

static struct buffer *new_buffer(struct job *job, VkDescriptorType type) {
  if (job->buffer_count == MOST) quit(1, "more than %d buffers", MOST);
  struct buffer *buffer = &job->buffers[job->buffer_count++];
  buffer->type = type;
  buffer->elements = 1;
  return buffer;
}

static const char *value_of(const char *option, const char *name) {
  size_t length = strlen(name);
  return strncmp(option, name, length) == 0 && option[length] == '=' ? option + length + 1 : NULL;
}

static struct buffer *last_buffer(struct job *job) {
  if (!job->buffer_count) quit(1, "no buffer is named before");
  return &job->buffers[job->buffer_count - 1];
}

static void parse_image(struct buffer *buffer, const char *text) {
  parse_numbers(buffer->about, 9, text);
  buffer->type = buffer->about[USE] ? VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER : VK_DESCRIPTOR_TYPE_STORAGE_IMAGE;
}

static void parse_texels(struct buffer *buffer, const char *text) {
  uint32_t about[2];
  parse_numbers(about, 2, text);
  buffer->type = about[0] ? VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER : VK_DESCRIPTOR_TYPE_STORAGE_TEXEL_BUFFER;
  buffer->texels = about[1];
}

static struct job parse(int count, char **options) {
  if (count < 1) quit(1, "usage: dispatch SHADER.spv [OPTION]... [-- SHADER.spv [OPTION]...]...");
  struct job job = {.shader = options[0], .name = "RADV", .groups = {1, 1, 1}, .steps = 1, .push = "", .wait_s = 60, .counts_from = NOWHERE};
  for (int i = 1; i < count; i++) {
    const char *value;
    char *end = "";
    if ((value = value_of(options[i], "in"))) new_buffer(&job, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER)->in = value;
    else if ((value = value_of(options[i], "uniform"))) new_buffer(&job, VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER)->in = value;
    else if ((value = value_of(options[i], "zero"))) new_buffer(&job, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER)->size = number(value, &end);
    else if ((value = value_of(options[i], "out")) && job.buffer_count) job.buffers[job.buffer_count - 1].out = value;
    else if ((value = value_of(options[i], "image"))) parse_image(last_buffer(&job), value);
    else if ((value = value_of(options[i], "sampler"))) parse_numbers(last_buffer(&job)->sampling, 6, value);
    else if ((value = value_of(options[i], "texels"))) parse_texels(last_buffer(&job), value);
    else if ((value = value_of(options[i], "groups"))) parse_groups(job.groups, value);
    else if ((value = value_of(options[i], "base"))) parse_groups(job.base, value);
    else if ((value = value_of(options[i], "array"))) join(&job, number(value, &end));
    else if ((value = value_of(options[i], "counts"))) job.counts_from = number(value, &end);
    else if ((value = value_of(options[i], "indirect"))) job.indirect = number(value, &end);
    else if ((value = value_of(options[i], "steps"))) job.steps = number(value, &end);
    else if ((value = value_of(options[i], "push"))) job.push = value;
    else if ((value = value_of(options[i], "spec"))) parse_spec(&job, value);
    else if ((value = value_of(options[i], "wave"))) job.wave = number(value, &end);
    else if ((value = value_of(options[i], "queue"))) job.compute_only = strcmp(value, "compute") == 0;
    else if ((value = value_of(options[i], "device"))) job.name = value;
    else if ((value = value_of(options[i], "wait"))) job.wait_s = number(value, &end);
    else quit(1, "unknown option: %s", options[i]);
    if (*end) quit(1, "what is %s in %s?", end, options[i]);
  }
  if (job.counts_from != NOWHERE && job.counts_from >= job.buffer_count) quit(1, "counts=%u of %u buffers", job.counts_from, job.buffer_count);
  return job;
}

static void find_device(const char *word) {
  VkApplicationInfo application = {VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "dispatch", .apiVersion = VK_API_VERSION_1_3};
  VkInstanceCreateInfo about = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
  DO(vkCreateInstance, &about, NULL, &instance);
  VkPhysicalDevice devices[MOST];
  uint32_t count = MOST;
  DO(vkEnumeratePhysicalDevices, instance, &count, devices);
  for (uint32_t i = 0; i < count; i++) {
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(devices[i], &properties);
    if (!strstr(properties.deviceName, word)) continue;
    printf("%s\n", properties.deviceName);
    physical = devices[i];
    return;
  }
  quit(1, "no device with %s in its name among %u", word, count);
}

static uint32_t find_queue(bool compute_only) {
  VkQueueFamilyProperties families[MOST];
  uint32_t count = MOST;
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
  for (uint32_t i = 0; i < count; i++) {
    bool graphics = families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT;
    if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT && graphics != compute_only) return i;
  }
  quit(1, "no queue family for compute %s graphics", compute_only ? "without" : "with");
}

static bool offers(const char *name) {
  uint32_t count = 0;
  DO(vkEnumerateDeviceExtensionProperties, physical, NULL, &count, NULL);
  VkExtensionProperties *all = calloc(count, sizeof *all);
  DO(vkEnumerateDeviceExtensionProperties, physical, NULL, &count, all);
  bool found = false;
  for (uint32_t i = 0; i < count; i++) found |= strcmp(all[i].extensionName, name) == 0;
  free(all);
  return found;
}

// Prints a line for each: rows, columns and depth, then the types of both factors, of the addend and of the result.
static void print_matrices(const char *word) {
  find_device(word);
  if (!offers(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME)) return;
  PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR list =
    (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)vkGetInstanceProcAddr(instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
  if (!list) quit(1, "the driver offers cooperative matrices and does not list them");
  uint32_t count = 0;
  DO(list, physical, &count, NULL);
  VkCooperativeMatrixPropertiesKHR *all = calloc(count, sizeof *all);
  for (uint32_t i = 0; i < count; i++) all[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
  DO(list, physical, &count, all);
  for (uint32_t i = 0; i < count; i++) {
    const VkCooperativeMatrixPropertiesKHR *one = &all[i];
    if (one->scope != VK_SCOPE_SUBGROUP_KHR || one->saturatingAccumulation) continue;
    printf("MATRIX %u %u %u %d %d %d %d\n", one->MSize, one->NSize, one->KSize, one->AType, one->BType, one->CType, one->ResultType);
  }
  free(all);
}

// Makes the device with all those features that it offers and that shaders may use, and a queue of each family that a
// job uses.
static void make_device(const struct job *jobs, uint32_t job_count) {
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
  VkPhysicalDeviceShaderAtomicFloatFeaturesEXT atomic = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_FEATURES_EXT};
  VkPhysicalDeviceVulkan13Features v13 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
  VkPhysicalDeviceVulkan12Features v12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &v13};
  VkPhysicalDeviceVulkan11Features v11 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &v12};
  VkPhysicalDeviceFeatures2 features = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &v11};
  const char *extensions[2];
  uint32_t count = 0;
  if (offers(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME)) {
    extensions[count++] = VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
    matrix.pNext = v13.pNext;
    v13.pNext = &matrix;
  }
  if (offers(VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME)) {
    extensions[count++] = VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME;
    atomic.pNext = v13.pNext;
    v13.pNext = &atomic;
  }
  vkGetPhysicalDeviceFeatures2(physical, &features);
  features.features.robustBufferAccess = VK_FALSE;
  float priority = 1;
  VkDeviceQueueCreateInfo queues[2];
  uint32_t queue_count = 0;
  for (uint32_t i = 0; i < job_count; i++) {
    uint32_t family = jobs[i].family;
    if ((queue_count && queues[0].queueFamilyIndex == family) || (queue_count == 2 && queues[1].queueFamilyIndex == family)) continue;
    queues[queue_count++] = (VkDeviceQueueCreateInfo){
      VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueFamilyIndex = family, .queueCount = 1, .pQueuePriorities = &priority,
    };
  }
  VkDeviceCreateInfo about = {
    VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &features, .queueCreateInfoCount = queue_count, .pQueueCreateInfos = queues,
    .enabledExtensionCount = count, .ppEnabledExtensionNames = extensions,
  };
  DO(vkCreateDevice, physical, &about, NULL, &device);
}

static struct block allocate(const VkMemoryRequirements *needs, VkDeviceSize size, VkMemoryPropertyFlags wanted) {
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(physical, &memory);
  for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
    if (!(needs->memoryTypeBits >> i & 1) || (memory.memoryTypes[i].propertyFlags & wanted) != wanted) continue;
    VkMemoryAllocateFlagsInfo flags = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    VkMemoryAllocateInfo about = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &flags, .allocationSize = size, .memoryTypeIndex = i};
    struct block made = {.size = size};
    DO(vkAllocateMemory, device, &about, NULL, &made.memory);
    if (wanted & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) DO(vkMapMemory, device, made.memory, 0, VK_WHOLE_SIZE, 0, (void **)&made.mapped);
    return made;
  }
  quit(1, "no memory type has properties %#x", wanted);
}

// Returns a place in a pool's memory.
static struct block *room(const VkMemoryRequirements *needs, struct pool *pool, VkDeviceSize *at) {
  for (;; pool->at++, pool->used = 0) {
    if (pool->at == MOST) quit(1, "more than %d blocks of memory", MOST);
    struct block *block = &pool->blocks[pool->at];
    if (pool->at == pool->count) {
      *block = allocate(needs, needs->size > BLOCK_BYTES ? needs->size : BLOCK_BYTES, pool->wanted);
      pool->count++;
    }
    *at = (pool->used + needs->alignment - 1) / needs->alignment * needs->alignment;
    if (*at + needs->size > block->size) continue;
    pool->used = *at + needs->size;
    return block;
  }
}

// Gives a buffer memory of a pool, and returns where the host sees it, if it does.
static void *place(VkBuffer buffer, struct pool *pool) {
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(device, buffer, &needs);
  VkDeviceSize at;
  struct block *block = room(&needs, pool, &at);
  DO(vkBindBufferMemory, device, buffer, block->memory, at);
  return block->mapped ? block->mapped + at : NULL;
}

static VkBuffer make_buffer(VkDeviceSize size) {
  VkBufferUsageFlags usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                             VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT | VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                             VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT | VK_BUFFER_USAGE_STORAGE_TEXEL_BUFFER_BIT;
  VkBufferCreateInfo about = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = size, .usage = usage};
  VkBuffer buffer;
  DO(vkCreateBuffer, device, &about, NULL, &buffer);
  return buffer;
}

static VkImageAspectFlags aspect(VkFormat format) {
  return format >= VK_FORMAT_D16_UNORM && format <= VK_FORMAT_D32_SFLOAT ? VK_IMAGE_ASPECT_DEPTH_BIT : VK_IMAGE_ASPECT_COLOR_BIT;
}

static void make_sampler(struct buffer *buffer) {
  const uint32_t *how = buffer->sampling;
  VkSamplerCreateInfo about = {
    VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO, .magFilter = how[MAG], .minFilter = how[MIN], .mipmapMode = how[MIP],
    .addressModeU = how[WRAP], .addressModeV = how[WRAP], .addressModeW = how[WRAP], .borderColor = how[BORDER],
    .compareEnable = how[COMPARE] > 0, .compareOp = how[COMPARE] ? how[COMPARE] - 1 : 0, .maxLod = VK_LOD_CLAMP_NONE,
  };
  DO(vkCreateSampler, device, &about, NULL, &buffer->sampler);
}

// Makes the image whose bytes a buffer has, all of it one view.
static void make_image(struct buffer *buffer) {
  static const VkImageType types[] = {VK_IMAGE_TYPE_1D, VK_IMAGE_TYPE_2D, VK_IMAGE_TYPE_3D, VK_IMAGE_TYPE_2D, VK_IMAGE_TYPE_1D, VK_IMAGE_TYPE_2D, VK_IMAGE_TYPE_2D};
  const uint32_t *is = buffer->about;
  bool cubes = is[VIEW] == VK_IMAGE_VIEW_TYPE_CUBE || is[VIEW] == VK_IMAGE_VIEW_TYPE_CUBE_ARRAY;
  VkImageCreateInfo about = {
    VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO, .flags = cubes ? VK_IMAGE_CREATE_CUBE_COMPATIBLE_BIT : 0, .imageType = types[is[VIEW]],
    .format = is[FORMAT], .extent = {is[WIDTH], is[HEIGHT], is[DEPTH]}, .mipLevels = is[LEVELS], .arrayLayers = is[LAYERS],
    .samples = VK_SAMPLE_COUNT_1_BIT, .usage = VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT |
    (is[USE] ? VK_IMAGE_USAGE_SAMPLED_BIT : VK_IMAGE_USAGE_STORAGE_BIT),
  };
  DO(vkCreateImage, device, &about, NULL, &buffer->image);
  VkMemoryRequirements needs;
  vkGetImageMemoryRequirements(device, buffer->image, &needs);
  VkDeviceSize at;
  struct block *block = room(&needs, &image_pool, &at);
  DO(vkBindImageMemory, device, buffer->image, block->memory, at);
  uint32_t swizzle = is[SWIZZLE];
  VkImageViewCreateInfo seen = {
    VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO, .image = buffer->image, .viewType = is[VIEW], .format = is[FORMAT],
    .components = {swizzle / 1000, swizzle / 100 % 10, swizzle / 10 % 10, swizzle % 10},
    .subresourceRange = {aspect(is[FORMAT]), 0, is[LEVELS], 0, is[LAYERS]},
  };
  DO(vkCreateImageView, device, &seen, NULL, &buffer->view);
  if (is[USE]) make_sampler(buffer);
}

static void fill(struct buffer *buffer) {
  void *bytes = NULL;
  if (buffer->in) {
    size_t size;
    bytes = read_file(buffer->in, &size);
    buffer->size = size;
  }
  if (!buffer->size) quit(1, "an empty buffer");
  buffer->device = make_buffer(buffer->size);
  place(buffer->device, &device_pool);
  buffer->staging = make_buffer(buffer->size);
  buffer->mapped = place(buffer->staging, &staging_pool);
  if (bytes) memcpy(buffer->mapped, bytes, buffer->size);
  else memset(buffer->mapped, 0, buffer->size);
  free(bytes);
  if (buffer->about[LEVELS]) make_image(buffer);
  VkBufferViewCreateInfo texels = {
    VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO, .buffer = buffer->device, .format = buffer->texels, .range = VK_WHOLE_SIZE,
  };
  if (buffer->texels) DO(vkCreateBufferView, device, &texels, NULL, &buffer->texel_view);
}

static void free_buffer(const struct buffer *buffer) {
  vkDestroyBufferView(device, buffer->texel_view, NULL);
  vkDestroySampler(device, buffer->sampler, NULL);
  vkDestroyImageView(device, buffer->view, NULL);
  vkDestroyImage(device, buffer->image, NULL);
  vkDestroyBuffer(device, buffer->device, NULL);
  vkDestroyBuffer(device, buffer->staging, NULL);
}

static uint64_t address_of(const struct job *job, uint64_t binding) {
  if (binding >= job->buffer_count) quit(1, "no buffer %llu", (unsigned long long)binding);
  VkBufferDeviceAddressInfo about = {VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = job->buffers[binding].device};
  return vkGetBufferDeviceAddress(device, &about);
}

// Lays out the push constants of a step, each at a multiple of its size, and returns their size in bytes.
static uint32_t push_constants(const struct job *job, uint32_t step, char *bytes) {
  uint32_t at = 0;
  char *end;
  for (const char *item = job->push; *item; item = *end ? end + 1 : end) {
    const char *colon = strchr(item, ':');
    union { uint32_t u32; uint64_t u64; float f32; double f64; } value;
    uint32_t size = strncmp(item, "u64", 3) && strncmp(item, "f64", 3) && strncmp(item, "address", 7) ? 4 : 8;
    if (strncmp(item, "step", 4) == 0) value.u32 = step, end = (char *)item + 4;
    else if (!colon) quit(1, "push=: at %s", item);
    else if (item[0] == 'f' && size == 4) value.f32 = strtof(colon + 1, &end);
    else if (item[0] == 'f') value.f64 = strtod(colon + 1, &end);
    else if (item[0] == 'a') value.u64 = address_of(job, number(colon + 1, &end));
    else value.u64 = number(colon + 1, &end);
    if ((*end && *end != ',') || (at = (at + size - 1) / size * size) + size > PUSH_BYTES) quit(1, "push=: at %s", item);
    memcpy(bytes + at, &value, size);
    at += size;
  }
  return at;
}

static void make_set_layout(struct job *job) {
  VkDescriptorSetLayoutBinding bindings[MOST];
  uint32_t count = 0;
  for (uint32_t i = 0; i < job->buffer_count; i += job->buffers[i].elements, count++)
    bindings[count] = (VkDescriptorSetLayoutBinding){count, job->buffers[i].type, job->buffers[i].elements, VK_SHADER_STAGE_COMPUTE_BIT, NULL};
  VkDescriptorSetLayoutCreateInfo about = {VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, .bindingCount = count, .pBindings = bindings};
  DO(vkCreateDescriptorSetLayout, device, &about, NULL, &job->set_layout);
}

static VkDescriptorSet make_set(struct job *job) {
  VkDescriptorPoolSize sizes[] = {
    {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, MOST}, {VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER, MOST}, {VK_DESCRIPTOR_TYPE_STORAGE_IMAGE, MOST},
    {VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER, MOST}, {VK_DESCRIPTOR_TYPE_STORAGE_TEXEL_BUFFER, MOST}, {VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER, MOST},
  };
  VkDescriptorPoolCreateInfo about_pool = {VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, .maxSets = 1, .poolSizeCount = sizeof sizes / sizeof *sizes, .pPoolSizes = sizes};
  DO(vkCreateDescriptorPool, device, &about_pool, NULL, &job->descriptors);
  VkDescriptorSetAllocateInfo about = {
    VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, .descriptorPool = job->descriptors, .descriptorSetCount = 1, .pSetLayouts = &job->set_layout,
  };
  VkDescriptorSet set;
  DO(vkAllocateDescriptorSets, device, &about, &set);
  uint32_t binding = -1, element = 0;
  for (uint32_t i = 0; i < job->buffer_count; i++) {
    element = job->buffers[i].elements ? 0 : element + 1;
    binding += element == 0;
    VkDescriptorBufferInfo buffer = {job->buffers[i].device, 0, VK_WHOLE_SIZE};
    VkDescriptorImageInfo image = {job->buffers[i].sampler, job->buffers[i].view, VK_IMAGE_LAYOUT_GENERAL};
    VkWriteDescriptorSet write = {
      VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET, .dstSet = set, .dstBinding = binding, .dstArrayElement = element, .descriptorCount = 1,
      .descriptorType = job->buffers[i].type, .pBufferInfo = &buffer, .pImageInfo = &image, .pTexelBufferView = &job->buffers[i].texel_view,
    };
    vkUpdateDescriptorSets(device, 1, &write, 0, NULL);
  }
  return set;
}

static void make_layout(struct job *job, uint32_t push_bytes) {
  VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, push_bytes};
  VkPipelineLayoutCreateInfo about = {
    VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .setLayoutCount = 1, .pSetLayouts = &job->set_layout,
    .pushConstantRangeCount = push_bytes > 0, .pPushConstantRanges = &range,
  };
  DO(vkCreatePipelineLayout, device, &about, NULL, &job->layout);
}

static bool based(const struct job *job) {
  return job->base[0] || job->base[1] || job->base[2];
}

static void make_pipeline(struct job *job) {
  size_t size;
  uint32_t *words = read_file(job->shader, &size);
  VkShaderModuleCreateInfo about_module = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = size, .pCode = words};
  VkShaderModule module;
  DO(vkCreateShaderModule, device, &about_module, NULL, &module);
  free(words);
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo wave = {
    VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO, .requiredSubgroupSize = job->wave,
  };
  VkSpecializationInfo spec = {job->spec_count, job->spec_map, sizeof job->spec, job->spec};
  VkComputePipelineCreateInfo about = {
    VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO, .layout = job->layout, .flags = based(job) ? VK_PIPELINE_CREATE_DISPATCH_BASE_BIT : 0,
    .stage = {
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .pNext = job->wave ? &wave : NULL, .stage = VK_SHADER_STAGE_COMPUTE_BIT,
      .flags = job->wave ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0,
      .module = module, .pName = "main", .pSpecializationInfo = &spec,
    },
  };
  double start_s = now_s();
  DO(vkCreateComputePipelines, device, VK_NULL_HANDLE, 1, &about, NULL, &job->pipeline);
  job->compiling_s = now_s() - start_s;
  vkDestroyShaderModule(device, module, NULL);
}

static void barrier(VkCommandBuffer commands) {
  VkMemoryBarrier all = {
    VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
    .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT,
  };
  VkPipelineStageFlags from = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, to = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT;
  vkCmdPipelineBarrier(commands, from, to, 0, 1, &all, 0, NULL, 0, NULL);
}

static void copy(VkCommandBuffer commands, VkBuffer from, VkBuffer to, VkDeviceSize size) {
  VkBufferCopy all = {0, 0, size};
  vkCmdCopyBuffer(commands, from, to, 1, &all);
}

// Makes an image usable, with undefined contents.
static void lay_out(VkCommandBuffer commands, const struct buffer *buffer) {
  VkImageMemoryBarrier made = {
    VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER, .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT,
    .oldLayout = VK_IMAGE_LAYOUT_UNDEFINED, .newLayout = VK_IMAGE_LAYOUT_GENERAL, .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
    .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED, .image = buffer->image,
    .subresourceRange = {aspect(buffer->about[FORMAT]), 0, VK_REMAINING_MIP_LEVELS, 0, VK_REMAINING_ARRAY_LAYERS},
  };
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 0, NULL, 0, NULL, 1, &made);
}

static uint32_t larger(uint32_t size) {
  return size ? size : 1;
}

// Copies between an image and its buffer in device memory.
static void copy_image(VkCommandBuffer commands, const struct buffer *buffer, bool to_image) {
  const uint32_t *is = buffer->about;
  VkDeviceSize texels = 0, at = 0;
  for (uint32_t level = 0; level < is[LEVELS]; level++) texels += (VkDeviceSize)larger(is[WIDTH] >> level) * larger(is[HEIGHT] >> level) * larger(is[DEPTH] >> level) * is[LAYERS];
  for (uint32_t level = 0; level < is[LEVELS]; level++) {
    VkExtent3D extent = {larger(is[WIDTH] >> level), larger(is[HEIGHT] >> level), larger(is[DEPTH] >> level)};
    VkBufferImageCopy part = {.bufferOffset = at, .imageSubresource = {aspect(is[FORMAT]), level, 0, is[LAYERS]}, .imageExtent = extent};
    if (to_image) vkCmdCopyBufferToImage(commands, buffer->device, buffer->image, VK_IMAGE_LAYOUT_GENERAL, 1, &part);
    else vkCmdCopyImageToBuffer(commands, buffer->image, VK_IMAGE_LAYOUT_GENERAL, buffer->device, 1, &part);
    at += buffer->size / texels * extent.width * extent.height * extent.depth * is[LAYERS];
  }
}

static VkCommandBuffer begin(VkCommandPool pool) {
  VkCommandBufferAllocateInfo about = {
    VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = pool, .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY, .commandBufferCount = 1,
  };
  VkCommandBuffer commands;
  DO(vkAllocateCommandBuffers, device, &about, &commands);
  VkCommandBufferBeginInfo once = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  DO(vkBeginCommandBuffer, commands, &once);
  return commands;
}

static void record_step(const struct job *job, VkCommandBuffer commands, uint32_t step) {
  const uint32_t *base = job->base, *groups = job->groups;
  if (job->indirect) vkCmdDispatchIndirect(commands, job->counts.device, 0);
  else if (job->counts_from != NOWHERE && step) vkCmdDispatchIndirect(commands, job->buffers[job->counts_from].device, 0);
  else if (based(job)) vkCmdDispatchBase(commands, base[0], base[1], base[2], groups[0], groups[1], groups[2]);
  else vkCmdDispatch(commands, groups[0], groups[1], groups[2]);
}

static void record_work(struct job *job, VkCommandBuffer commands) {
  make_set_layout(job);
  VkDescriptorSet set = make_set(job);
  char push[PUSH_BYTES] = {0};
  uint32_t push_bytes = push_constants(job, 0, push);
  make_layout(job, push_bytes);
  make_pipeline(job);
  for (uint32_t i = 0; i < job->buffer_count; i++) copy(commands, job->buffers[i].staging, job->buffers[i].device, job->buffers[i].size);
  barrier(commands);
  for (uint32_t i = 0; i < job->buffer_count; i++) {
    if (!job->buffers[i].image) continue;
    lay_out(commands, &job->buffers[i]);
    copy_image(commands, &job->buffers[i], true);
  }
  if (job->indirect) copy(commands, job->counts.staging, job->counts.device, job->counts.size);
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, job->pipeline);
  vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, job->layout, 0, 1, &set, 0, NULL);
  for (uint32_t step = 0; step < job->steps; step++) {
    barrier(commands);
    push_constants(job, step, push);
    if (push_bytes) vkCmdPushConstants(commands, job->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, push_bytes, push);
    record_step(job, commands, step);
  }
  barrier(commands);
}

static void record_results(const struct job *job, VkCommandBuffer commands) {
  barrier(commands);
  for (uint32_t i = 0; i < job->buffer_count; i++)
    if (job->buffers[i].out && job->buffers[i].image) copy_image(commands, &job->buffers[i], false);
  barrier(commands);
  for (uint32_t i = 0; i < job->buffer_count; i++)
    if (job->buffers[i].out) copy(commands, job->buffers[i].device, job->buffers[i].staging, job->buffers[i].size);
  barrier(commands);
}

static void submit(VkQueue queue, VkCommandBuffer commands, double wait_s) {
  DO(vkEndCommandBuffer, commands);
  VkFenceCreateInfo about = {VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  VkFence fence;
  DO(vkCreateFence, device, &about, NULL, &fence);
  VkSubmitInfo all = {VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
  DO(vkQueueSubmit, queue, 1, &all, fence);
  DO(vkWaitForFences, device, 1, &fence, VK_TRUE, (uint64_t)(wait_s * 1e9));
  vkDestroyFence(device, fence, NULL);
}

static void append(const struct buffer *buffer) {
  FILE *file = fopen(buffer->out, "ab");
  if (!file || fwrite(buffer->mapped, 1, buffer->size, file) != buffer->size || fclose(file)) quit(1, "%s: %s", buffer->out, strerror(errno));
}

static void free_job(const struct job *job) {
  vkDestroyCommandPool(device, job->commands, NULL);
  vkDestroyPipeline(device, job->pipeline, NULL);
  vkDestroyPipelineLayout(device, job->layout, NULL);
  vkDestroyDescriptorPool(device, job->descriptors, NULL);
  vkDestroyDescriptorSetLayout(device, job->set_layout, NULL);
  for (uint32_t i = 0; i < job->buffer_count; i++) free_buffer(&job->buffers[i]);
  if (job->indirect) free_buffer(&job->counts);
  device_pool.at = image_pool.at = staging_pool.at = 0;
  device_pool.used = image_pool.used = staging_pool.used = 0;
}

static void run(struct job *job) {
  for (uint32_t i = 0; i < job->buffer_count; i++) fill(&job->buffers[i]);
  if (job->indirect) {
    job->counts.size = sizeof job->groups;
    fill(&job->counts);
    memcpy(job->counts.mapped, job->groups, sizeof job->groups);
  }
  VkCommandPoolCreateInfo about = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, .queueFamilyIndex = job->family};
  DO(vkCreateCommandPool, device, &about, NULL, &job->commands);
  VkQueue queue;
  vkGetDeviceQueue(device, job->family, 0, &queue);
  VkCommandBuffer work = begin(job->commands), results = begin(job->commands);
  record_work(job, work);
  submit(queue, work, job->wait_s);
  record_results(job, results);
  submit(queue, results, job->wait_s);
  for (uint32_t i = 0; i < job->buffer_count; i++)
    if (job->buffers[i].out) append(&job->buffers[i]);
  free_job(job);
}

int main(int count, char **options) {
  static struct job jobs[MOST_JOBS];
  if (count > 1 && strcmp(options[1], "matrices") == 0) {
    print_matrices(parse(count - 1, options + 1).name);
    return 0;
  }
  uint32_t job_count = 0;
  for (int at = 1, end; at == 1 || at < count; at = end + 1) {
    for (end = at; end < count && strcmp(options[end], "--");) end++;
    if (job_count == MOST_JOBS) quit(1, "more than %d jobs", MOST_JOBS);
    jobs[job_count++] = parse(end - at, options + at);
  }
  find_device(jobs[0].name);
  for (uint32_t i = 0; i < job_count; i++) jobs[i].family = find_queue(jobs[i].compute_only);
  make_device(jobs, job_count);
  for (uint32_t i = 0; i < job_count; i++) {
    double start_s = now_s();
    fprintf(stderr, "JOB %u %s\n", i, jobs[i].shader);
    run(&jobs[i]);
    fprintf(stderr, "TOOK %.2f s, compiling %.2f s\n", now_s() - start_s, jobs[i].compiling_s);
  }
  return 0;
}
