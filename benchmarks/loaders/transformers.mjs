// Print an image's logits through transformers.js, as JSON: node transformers.mjs cpu|wasm|webgpu MODELS NAME DTYPE IMAGE
// It runs on Node on the CPU, else in Chromium: WebGPU on SwiftShader, in software.
// In the working directory lie the packages that compare.py installs. Nothing is loaded from elsewhere.
import { createReadStream, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, extname, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

process.env.TMPDIR = process.cwd(); // where compare.py has unpacked Chromium
const TYPES = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.json': 'application/json', '.wasm': 'application/wasm' };
const packages = createRequire(pathToFileURL(resolve('package.json')));
const library = packages.resolve('@huggingface/transformers');
const [device, models, name, dtype, image] = process.argv.slice(2);

// It runs on Node, and as text in a page.
async function logitsOf(transformers, { models, name, dtype, image, device }) {
  const { env, AutoModelForImageClassification, AutoProcessor, RawImage } = transformers;
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = models;
  const processor = await AutoProcessor.from_pretrained(name);
  const session_options = device === 'webgpu' ? { freeDimensionOverrides: { batch: 1 } } : {};
  const model = await AutoModelForImageClassification.from_pretrained(name, { dtype, device, session_options });
  const { logits } = await model(await processor(await RawImage.read(image)));
  return Array.from(logits.data);
}

async function inNode() {
  return logitsOf(await import(pathToFileURL(library)), { models: `${resolve(models)}/`, name, dtype, image: resolve(image), device });
}

function served() {
  const roots = {
    '/library/': dirname(library),
    '/runtime/': dirname(createRequire(library).resolve('onnxruntime-web')),
    '/models/': resolve(models),
    '/image/': dirname(resolve(image)),
  };
  return createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url, 'http://localhost').pathname);
    const root = Object.keys(roots).find((beginning) => path.startsWith(beginning));
    const file = root && resolve(roots[root], path.slice(root.length));
    if (file && existsSync(file)) {
      response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' });
      createReadStream(file).pipe(response);
    } else {
      response.writeHead(path === '/' ? 200 : 404, { 'content-type': 'text/html' });
      response.end('<!doctype html>');
    }
  });
}

async function inChromium() {
  const { default: chromium } = await import(pathToFileURL(packages.resolve('@sparticuz/chromium')));
  const { default: puppeteer } = await import(pathToFileURL(packages.resolve('puppeteer-core')));
  const server = served().listen(0);
  const browser = await puppeteer.launch({
    args: [...chromium.args, '--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'],
    executablePath: await chromium.executablePath(),
    headless: 'shell',
    timeout: 0,
    protocolTimeout: 0,
  });
  try {
    const page = await browser.newPage();
    await page.goto(`http://localhost:${server.address().port}/`);
    const file = image.split('/').pop();
    const settings = { models: '/models/', name, dtype, image: `/image/${file}`, device };
    return await page.evaluate(`(async () => {
      const transformers = await import('/library/transformers.min.js');
      Object.assign(transformers.env.backends.onnx.wasm, { wasmPaths: '/runtime/', numThreads: 1 });
      ${logitsOf}
      return logitsOf(transformers, ${JSON.stringify(settings)});
    })()`);
  } finally {
    await browser.close();
    server.close();
  }
}

console.log(JSON.stringify(await (device === 'cpu' ? inNode() : inChromium())));
