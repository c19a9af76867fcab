// Open try.html in headless Chromium, give it a picture, and print what is seen, as JSON:
//   node try_page.mjs ADDRESS '{"library": PREFIX, "dist": FOLDER, "picture": FILE, "models": [FILE], "width": 360, "dark": true}'
// In the working directory lie the packages. What the page asks of `library` is answered from `dist`; all else, from nowhere.
// With "gpu", WebGPU is SwiftShader, in software.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

process.env.TMPDIR = process.cwd(); // where compare.py has unpacked Chromium
const TYPES = { mjs: 'text/javascript', wasm: 'application/wasm' };
const packages = createRequire(pathToFileURL(resolve('package.json')));
const { default: chromium } = await import(pathToFileURL(packages.resolve('@sparticuz/chromium')));
const { default: puppeteer } = await import(pathToFileURL(packages.resolve('puppeteer-core')));
const [address, words] = process.argv.slice(2);
const { library, dist, picture, models, width, dark, gpu } = JSON.parse(words);

const browser = await puppeteer.launch({
  args: [...chromium.args, ...(gpu ? ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'] : [])],
  executablePath: await chromium.executablePath(),
  headless: 'shell',
  timeout: 0,
  protocolTimeout: 0,
});
const requests = [];
const errors = [];

function reply(request) {
  const place = request.url();
  if (place.startsWith('blob:') || place.startsWith('data:')) return request.continue();
  requests.push(place);
  if (!place.startsWith(library)) {
    return new URL(place).host === new URL(address).host ? request.continue() : request.abort();
  }
  const name = place.slice(library.length);
  return request.respond({
    contentType: TYPES[name.split('.').pop()],
    headers: { 'access-control-allow-origin': '*' },
    body: readFileSync(join(dist, name)),
  });
}

// Runs in the page.
function seen() {
  const wide = [...document.querySelectorAll('body *')].filter((element) => element.scrollWidth > element.clientWidth + 1
    && ['auto', 'scroll'].includes(getComputedStyle(element).overflowX));
  return {
    state: document.getElementById('state').innerText,
    role: document.getElementById('state').getAttribute('role'),
    rows: [...document.querySelectorAll('#answer tr')].map((row) => row.innerText),
    frames: [...document.querySelectorAll('#layers canvas')].map((canvas) => canvas.toDataURL()),
    captions: [...document.querySelectorAll('#layers figure')].map((figure) => figure.innerText.trim()),
    titles: [...document.querySelectorAll('#layers canvas')].map((canvas) => canvas.getAttribute('aria-label')),
    unnamed: [...document.querySelectorAll('input')].filter((input) => !input.labels.length).length,
    device: document.getElementById('device').innerText,
    asks: !document.getElementById('alone').hidden,
    wide: wide.map((element) => element.id || element.tagName),
    width: innerWidth,
    scrolled: document.documentElement.scrollWidth,
    background: getComputedStyle(document.body).backgroundColor,
  };
}

try {
  const page = await browser.newPage();
  page.setDefaultTimeout(0);
  await page.setViewport({ width: width ?? 1000, height: 900 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }]);
  page.on('console', (message) => { if (message.type() === 'error') errors.push(message.text()); });
  page.on('pageerror', (error) => errors.push(`${error}`));
  await page.setRequestInterception(true);
  page.on('request', reply);
  await page.goto(address);
  const before = [...requests];
  await page.keyboard.press('Tab');
  const first = await page.evaluate(() => document.activeElement.id);
  await page.evaluate(() => {
    window.answered = new Promise((done) => { document.addEventListener('answer', ({ detail }) => done(detail)); });
    const state = document.getElementById('state');
    window.refused = new Promise((done) => {
      new MutationObserver(() => { if (state.className) done(null); }).observe(state, { attributes: true });
    });
  });
  const input = (id) => page.$(`#${id}`);
  if (models) await (await input('models')).uploadFile(...models);
  await (await input('picture')).uploadFile(picture);
  const answer = await page.evaluate(() => Promise.race([window.answered, window.refused]));
  const after = { answer, first, before, requests: [...requests], errors: [...errors], ...(await page.evaluate(seen)) };
  // The policy of the page holds.
  const barred = await page.evaluate(() => new Promise((done) => {
    document.addEventListener('securitypolicyviolation', ({ blockedURI }) => done(blockedURI));
    fetch('https://example.org/').then(() => done('')).catch(() => setTimeout(() => done(''), 5000));
  }));
  console.log(JSON.stringify({ ...after, barred }));
} finally {
  await browser.close();
}
