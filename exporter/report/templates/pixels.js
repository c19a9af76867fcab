// A picture as the pixels that the model was trained on: Pillow's resize, bit for bit, and the crop.
// A picture is {width, height, data}, of red, green, blue and alpha for each pixel, as a canvas has it.

const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));
const triangle = (x) => Math.max(0, 1 - Math.abs(x));
const hamming = (x) => (Math.abs(x) < 1 ? sinc(x) * (0.54 + 0.46 * Math.cos(Math.PI * x)) : 0);

// Keys' cubic with a slope of -1/2.
function cubic(x) {
  const far = Math.abs(x);
  if (far < 1) return (1.5 * far - 2.5) * far * far + 1;
  return far < 2 ? -0.5 * (((far - 5) * far + 8) * far - 4) : 0;
}

// The filters by Pillow's names: how far each reaches, in pixels of the larger scale, and its weight there.
const FILTERS = {
  box: [0.5, (x) => (x > -0.5 && x <= 0.5 ? 1 : 0)],
  bilinear: [1, triangle],
  hamming: [1, hamming],
  bicubic: [2, cubic],
  lanczos: [3, (x) => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0)],
};
// Weights are whole numbers of 22 bits behind the point: the sums are exact.
const BITS = 22;

// For each place of the resized line, the first pixel that it reads and the weights from there on.
function weightsOf(length, target, filter) {
  const scale = length / target;
  if (filter === 'nearest') {
    let place = scale / 2;
    return Array.from({ length: target }, () => {
      const first = Math.floor(place);
      place += scale;
      return { first, weights: [1 << BITS] };
    });
  }
  const [reach, weight] = FILTERS[filter];
  const zoom = Math.max(scale, 1);
  return Array.from({ length: target }, (_, place) => {
    const centre = (place + 0.5) * scale;
    const first = Math.max(Math.trunc(centre - reach * zoom + 0.5), 0);
    const end = Math.min(Math.trunc(centre + reach * zoom + 0.5), length);
    const shares = [];
    for (let pixel = first; pixel < end; pixel += 1) {
      shares.push(weight((pixel - centre + 0.5) * (1 / zoom)));
    }
    const total = shares.reduce((sum, share) => sum + share, 0);
    const whole = (share) => Math.trunc(share * 2 ** BITS + (share < 0 ? -0.5 : 0.5));
    return { first, weights: shares.map((share) => whole(total ? share / total : share)) };
  });
}

// One axis of a resize: each of `lines` lines, rows or columns, of `length` pixels gets `target` ones.
function resampled(data, lines, length, target, filter, isRow) {
  const result = new Uint8ClampedArray(4 * lines * target);
  const step = isRow ? 1 : lines;
  weightsOf(length, target, filter).forEach(({ first, weights }, place) => {
    for (let line = 0; line < lines; line += 1) {
      const from = 4 * ((isRow ? line * length : line) + first * step);
      const to = 4 * ((isRow ? line * target : line) + place * step);
      for (let channel = 0; channel < 4; channel += 1) {
        let sum = 2 ** (BITS - 1);
        for (let index = 0; index < weights.length; index += 1) {
          sum += weights[index] * data[from + channel + 4 * index * step];
        }
        result[to + channel] = sum >> BITS;
      }
    }
  });
  return result;
}

// Rows or columns first makes a difference of rounding: Pillow 13 begins with the columns of a tall picture.
function resized(picture, width, height, filter) {
  let { data } = picture;
  const rows = (lines) => {
    if (width !== picture.width) data = resampled(data, lines, picture.width, width, filter, true);
  };
  const columns = (lines) => {
    if (height !== picture.height) data = resampled(data, lines, picture.height, height, filter, false);
  };
  const fall = picture.height - height;
  if (fall > 0 && fall > 2 * (picture.width - width)) {
    columns(picture.width);
    rows(height);
  } else {
    rows(picture.height);
    columns(width);
  }
  return { width, height, data };
}

// The nearest whole number; of two, the even one.
function toEven(x) {
  const below = Math.floor(x);
  const rest = x - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below;
}

// The width and height to which a picture is resized before its centre is taken.
function sidesOf({ width, height }, preprocessing) {
  const { crop_mode: mode, crop_pct: share, input_size: [, rows, columns] } = preprocessing;
  const scaled = [Math.floor(columns / share), Math.floor(rows / share)];
  if (mode === 'none') return [width, height];
  if (mode === 'squash') return scaled;
  if (mode === 'center' && rows === columns) {
    const short = Math.min(width, height);
    return [width, height].map((side) => Math.floor((scaled[0] * side) / short));
  }
  const ratios = [width / scaled[0], height / scaled[1]];
  const ratio = mode === 'border' ? Math.max(...ratios) : Math.min(...ratios);
  return [width, height].map((side) => Math.max(1, toEven(side / ratio)));
}

// The picture at the size of the model. What it does not cover is black, under "border" the mean colour.
function fitted(picture, preprocessing) {
  const [, height, width] = preprocessing.input_size;
  const isBorder = preprocessing.crop_mode === 'border';
  const sides = sidesOf(picture, preprocessing);
  const image = resized(picture, ...sides, preprocessing.interpolation);
  const toWhole = preprocessing.crop_rounding === 'down' ? Math.floor : toEven;
  const [left, top] = [width, height].map((wanted, axis) => {
    const padding = isBorder ? Math.max(wanted - sides[axis], 0) : 0;
    return toWhole((sides[axis] + padding - wanted) / 2) - Math.floor(padding / 2);
  });
  const fill = isBorder ? preprocessing.mean.map((value) => toEven(255 * value)) : [0, 0, 0];
  const data = new Uint8ClampedArray(4 * width * height);
  for (let row = 0; row < height; row += 1) {
    for (let column = 0; column < width; column += 1) {
      const [x, y] = [column + left, row + top];
      const isInside = x >= 0 && x < image.width && y >= 0 && y < image.height;
      const from = 4 * (y * image.width + x);
      const colour = isInside ? image.data.subarray(from, from + 3) : fill;
      data.set(colour, 4 * (row * width + column));
      data[4 * (row * width + column) + 3] = 255;
    }
  }
  return { width, height, data };
}

// The model's input, [1, 3, height, width]: bytes, or as float32 normalised.
function inputOf({ width, height, data }, { mean, std }, kind) {
  const pixels = width * height;
  const values = kind === 'uint8' ? new Uint8Array(3 * pixels) : new Float32Array(3 * pixels);
  for (let channel = 0; channel < 3; channel += 1) {
    const [least, spread] = [Math.fround(mean[channel]), Math.fround(std[channel])];
    for (let pixel = 0; pixel < pixels; pixel += 1) {
      const byte = data[4 * pixel + channel];
      const light = Math.fround(Math.fround(byte / 255) - least);
      values[channel * pixels + pixel] = kind === 'uint8' ? byte : light / spread;
    }
  }
  return values;
}
