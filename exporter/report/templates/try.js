// A picture goes through both models; their answers, their times and what each layer keeps are shown.

const at = (id) => document.getElementById(id);
const settings = JSON.parse(at('settings').textContent);
const { files, preprocessing } = settings;
const isFile = location.protocol === 'file:';
// Models that were chosen by hand, by name.
const chosen = new Map();

function say(text, isError = false) {
  at('state').textContent = text;
  at('state').className = isError ? 'no' : '';
}

async function loaded(address, options = {}) {
  const response = await fetch(address, options);
  if (!response.ok) throw new Error(`${address}: ${response.status} ${response.statusText}`);
  return response.blob();
}

// The browser gives a file of the library only if its hash is the one in this page.
async function runtime() {
  const library = new URLSearchParams(location.search).get('library') ?? settings.library;
  const place = new URL(library, location.href);
  const { script, binary } = settings.build;
  const [code, wasm] = await Promise.all(
    [script, binary].map(({ name, integrity }) => loaded(new URL(name, place), { integrity })),
  );
  const ort = await import(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })));
  ort.env.wasm.wasmBinary = await wasm.arrayBuffer();
  ort.env.wasm.numThreads = 1;
  return ort;
}

async function bytesOf(name) {
  if (isFile && !chosen.has(name)) throw new Error(`${name}: not chosen yet`);
  const blob = isFile ? chosen.get(name) : await loaded(`./${encodeURIComponent(name)}`);
  return new Uint8Array(await blob.arrayBuffer());
}

// Sessions of both models, and of the variant that also gives its decisions, whose weights lie in the pruned file.
async function opened() {
  const models = {};
  for (const [role, name] of Object.entries(files)) models[role] = await bytesOf(name);
  say('Loading ONNX Runtime …');
  const ort = await runtime();
  const onGpu = settings.build.provider === 'webgpu' && (await navigator.gpu?.requestAdapter());
  say('Opening the models …');
  const sessions = {};
  for (const [role, model] of Object.entries(models)) {
    sessions[role] = await ort.InferenceSession.create(model, {
      executionProviders: [onGpu ? 'webgpu' : 'wasm'],
      freeDimensionOverrides: { batch: 1 },
      logSeverityLevel: 3, // errors
      externalData: role === 'tracing' ? [{ path: files.pruned, data: models.pruned }] : [],
    });
  }
  at('device').textContent = onGpu ? 'on WebGPU' : 'on one thread of the CPU (WebAssembly)';
  return { ort, sessions };
}

async function decoded(file) {
  const bitmap = await createImageBitmap(file, { colorSpaceConversion: 'none', premultiplyAlpha: 'none' });
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
  const context = canvas.getContext('2d', { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  return context.getImageData(0, 0, bitmap.width, bitmap.height);
}

// The numbers of an output; its whole numbers are of 64 bits.
const numbers = (tensor) => Array.from(tensor.data, Number);

// For each pruning layer, the tokens that are left: the patch where each stands, and all patches that it stands for.
function layersOf(decisions) {
  let tokens = settings.order.map((patch) => ({ patch, members: [patch] }));
  return settings.layers.map(({ layer, keep, count, into }) => {
    const left = count in decisions ? numbers(decisions[count])[0] : Infinity;
    const survivors = numbers(decisions[keep]).slice(0, left);
    const members = survivors.map((place) => tokens[place].members);
    if (into in decisions) {
      members.fill([]);
      numbers(decisions[into]).forEach((survivor, place) => {
        members[survivor] = [...members[survivor], ...tokens[place].members];
      });
    }
    tokens = survivors.map((place, token) => ({ patch: tokens[place].patch, members: members[token] }));
    return { layer, tokens };
  });
}

// Where the pixels of each patch begin in the data of a picture.
function pixelsByPatch({ width, height }) {
  const [rows, columns] = settings.grid;
  const pixels = Array.from({ length: rows * columns }, () => []);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      const patch = Math.floor((y * rows) / height) * columns + Math.floor((x * columns) / width);
      pixels[patch].push(4 * (y * width + x));
    }
  }
  return pixels;
}

// The picture with what is gone faded; a patch that others were merged into has the mean colour of all.
function painted({ width, height, data }, tokens, pixels) {
  const { gone_share: share, gone_colour: colour } = settings;
  const result = data.map((value, place) => (place % 4 === 3 ? value : share * value + (1 - share) * colour[place % 4]));
  for (const { patch, members } of tokens) {
    const all = members.flatMap((member) => pixels[member]);
    for (let channel = 0; channel < 3; channel += 1) {
      const mean = all.reduce((sum, pixel) => sum + data[pixel + channel], 0) / all.length;
      for (const pixel of pixels[patch]) {
        result[pixel + channel] = members.length > 1 ? mean : data[pixel + channel];
      }
    }
  }
  return { width, height, data: result };
}

function frame({ width, height, data }, title, caption) {
  const canvas = Object.assign(document.createElement('canvas'), { width, height });
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', title);
  canvas.getContext('2d').putImageData(new ImageData(data, width, height), 0, 0);
  const figure = document.createElement('figure');
  figure.append(canvas, caption);
  return figure;
}

function show(picture, layers) {
  const pixels = pixelsByPatch(picture);
  const frames = layers.map(({ layer, tokens }) => frame(
    painted(picture, tokens, pixels), `What is left after layer ${layer}`, `layer ${layer}: ${tokens.length}`,
  ));
  at('layers').replaceChildren(frame(picture, 'The picture as the models see it', 'picture'), ...frames);
  for (const id of ['classes', 'times']) at(id).replaceChildren();
  at('answer').hidden = false;
}

function sharesOf(logits) {
  const most = Math.max(...logits);
  const powers = logits.map((logit) => Math.exp(logit - most));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}

const nameOf = (index) => settings.classes[index] ?? `class ${index}`;
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const milliseconds = (time) => `${time.toFixed(1)} ms`;
const median = (times) => [...times].sort((a, b) => a - b)[times.length >> 1];

function row(name, cells) {
  const line = document.createElement('tr');
  for (const content of [name, ...cells]) line.insertCell().append(...[content].flat());
  return line;
}

function bar(share) {
  const mark = Object.assign(document.createElement('div'), { className: 'bar' });
  mark.style.width = percent(share).replace(' ', '');
  return [percent(share), mark];
}

function report(shares, times) {
  const roles = ['dense', 'pruned'];
  const ranked = roles.map((role) => {
    const order = shares[role].map((_, index) => index);
    return order.sort((a, b) => shares[role][b] - shares[role][a]).slice(0, 5);
  });
  const classes = [...new Set(ranked.flat())];
  at('classes').replaceChildren(
    ...classes.map((index) => row(nameOf(index), roles.map((role) => bar(shares[role][index])))),
  );
  const middles = roles.map((role) => median(times[role]));
  at('times').replaceChildren(row('time', middles.map(milliseconds)));
  const [dense, pruned] = roles.map((role, place) => {
    const first = ranked[place][0];
    return `${nameOf(first)} (${percent(shares[role][first])}) in ${milliseconds(middles[place])}`;
  });
  say(`Dense: ${dense}. Pruned: ${pruned}, ${(middles[1] / middles[0]).toFixed(2)} of the dense one's time.`);
}

let models = null;

async function answer(file) {
  say('Reading the picture …');
  const picture = fitted(await decoded(file), preprocessing);
  models ??= opened();
  const { ort, sessions } = await models.catch((error) => {
    models = null;
    throw error;
  });
  const shape = [1, ...preprocessing.input_size];
  const images = new ort.Tensor(settings.input, inputOf(picture, preprocessing, settings.input), shape);
  const layers = layersOf(await sessions.tracing.run({ images }));
  show(picture, layers);
  say('Running both models …');
  // The picture is drawn before they take the thread.
  await new Promise((done) => { setTimeout(done); });
  const [logits, times] = [{}, { dense: [], pruned: [] }];
  for (let round = 0; round <= settings.rounds; round += 1) {
    for (const role of ['dense', 'pruned']) {
      const start = performance.now();
      const outputs = await sessions[role].run({ images });
      if (round) times[role].push(performance.now() - start);
      logits[role] = numbers(outputs.logits);
    }
  }
  report({ dense: sharesOf(logits.dense), pruned: sharesOf(logits.pruned) }, times);
  document.dispatchEvent(new CustomEvent('answer', { detail: { logits, layers } }));
}

// One picture after the other; the last one is taken again when models are chosen.
let work = Promise.resolve();
let last = null;
function take(file) {
  if (!file) return;
  last = file;
  work = work.then(() => answer(file)).catch((error) => say(`Not answered: ${error.message}`, true));
}

for (const id of ['picture', 'camera']) {
  at(id).addEventListener('change', ({ target }) => take(target.files[0]));
}
at('models').addEventListener('change', ({ target }) => {
  for (const file of target.files) chosen.set(file.name, file);
  take(last);
});
at('alone').hidden = !isFile;
for (const event of ['dragover', 'dragleave', 'drop']) {
  document.addEventListener(event, (dragged) => {
    dragged.preventDefault();
    at('drop').classList.toggle('over', event === 'dragover');
    if (event === 'drop') take(dragged.dataTransfer.files[0]);
  });
}
