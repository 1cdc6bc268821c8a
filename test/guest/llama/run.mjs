// llama.cpp by node-llama-cpp: node run.mjs PACKAGES MODELS cpu|vulkan [TOKENS]
// Prints, as JSON: the device, the embeddings of a few sentences, and the decoder's text with the probability of each
// token. With a list of TOKENS, the decoder takes these tokens instead of the most probable ones.
const [packages, models, where, said] = process.argv.slice(2);
const tokens = JSON.parse(said ?? "[]");
const {getLlama, LlamaLogLevel} = await import(`${packages}/node_modules/node-llama-cpp/dist/index.js`);

const SENTENCES = [
  "The cat sat on the mat.",
  "A kitten is lying on a rug.",
  "Quarterly tax returns are due at the end of April, and no extension will be granted to anybody this year or the next, whatever they say.",
];
const PROMPT = "A ring of doorbells: whoever rings is answered in order.";
const STEPS = 12;

const llama = await getLlama({gpu: where === "cpu" ? false : where, build: "never", logLevel: LlamaLogLevel.warn, maxThreads: 2});
const answer = {where: llama.gpu || "cpu", devices: await llama.getGpuDeviceNames(), embeddings: [], steps: []};
const load = (name) => llama.loadModel({modelPath: `${models}/${name}.gguf`, gpuLayers: where === "cpu" ? 0 : "max"});

const embedder = await (await load("embedding")).createEmbeddingContext({contextSize: 128, batchSize: 128});
for (const sentence of SENTENCES) answer.embeddings.push((await embedder.getEmbeddingFor(sentence)).vector);

const model = await load("language");
const sequence = (await model.createContext({contextSize: 128, batchSize: 128})).getSequence();
let next = model.tokenize(PROMPT);
for (let step = 0; step < STEPS; step++) {
  const last = next.length - 1;
  const input = next.map((token, at) => (at < last ? token : [token, {generateNext: {token: true, probabilities: true}}]));
  const {token, probabilities} = (await sequence.controlledEvaluate(input))[last].next;
  answer.steps.push({token, probabilities: [...probabilities]});
  next = [tokens[step] ?? token];
}
process.stdout.write(`${JSON.stringify(answer)}\n`, () => process.exit(0));
