// Numbers and dates in words, ticks of axes, colours of scales, for the pictures of a report.
const MINUTE = 6e4, HOUR = 36e5, DAY = 864e5;
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

// -- numbers and dates in words -----------------------------------------------------------------

function number(value) {
  if (value === null || !isFinite(value)) return "–";
  const size = Math.abs(value);
  const text = size && (size >= 1e6 || size < 1e-4)
    ? value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e")
    : String(Number(value.toPrecision(4)));
  return text.replace("-", "−");
}

function date(ms, step) {
  const at = new Date(ms), two = (k) => String(k).padStart(2, "0");
  const day = `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]}`;
  if (step >= 365 * DAY) return String(at.getUTCFullYear());
  if (step >= 28 * DAY) return `${MONTHS[at.getUTCMonth()]} ${at.getUTCFullYear()}`;
  if (step >= DAY) return `${day} ${at.getUTCFullYear()}`;
  const clock = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}`;
  return step >= HOUR || step === 0 ? `${day} ${clock}` : clock;
}

function said(axis, value) {
  if (axis.kind === "time") return date(value, value % DAY === 0 ? DAY : 0);
  if (axis.kind === "names" && axis.ticks) {
    const found = axis.ticks.find(([at]) => at === Math.round(value));
    return found ? found[1] : "";
  }
  return axis.percent ? `${number(100 * value)}%` : number(value);
}

// -- ticks --------------------------------------------------------------------------------------

function ticksOf(axis, [low, high], most) {
  if (axis.ticks) return axis.ticks.filter(([at]) => at >= low - 1e-9 && at <= high + 1e-9);
  if (axis.kind === "time") return dateTicks(low, high, most);
  const span = high - low || 1, raw = span / Math.max(most, 2);
  const power = 10 ** Math.floor(Math.log10(raw));
  let step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= raw * 0.999);
  if (axis.whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * span; k++) {
    found.push([k * step, said(axis, Number((k * step).toPrecision(12)))]);
  }
  return found;
}

function dateTicks(low, high, most) {
  const raw = (high - low || DAY) / Math.max(most, 2), found = [];
  const fixed = [MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY,
    2 * DAY, 7 * DAY, 14 * DAY].find((step) => step >= raw);
  if (fixed) {
    for (let at = Math.ceil(low / fixed) * fixed; at <= high; at += fixed) {
      found.push([at, date(at, fixed)]);
    }
    return found;
  }
  const months = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200]
    .find((k) => k * 30.4 * DAY >= raw) || 2400;
  const first = new Date(low);
  let month = 12 * first.getUTCFullYear() + first.getUTCMonth();
  month = Math.ceil(month / months) * months;
  for (; ; month += months) {
    const at = new Date(0);
    at.setUTCFullYear(Math.floor(month / 12), month % 12, 1);
    if (at.getTime() > high) return found;
    if (at.getTime() >= low) found.push([at.getTime(), date(at.getTime(), months * 30.4 * DAY)]);
  }
}

// -- colours ------------------------------------------------------------------------------------

const channels = (colour) => [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));

function colourAt(scale, value) {
  if (value === null) return [228, 230, 234];
  if (scale.steps) return channels(scale.stops[Math.round(value)]);
  const [low, high] = scale.ends;
  const t = Math.min(1, Math.max(0, high > low ? (value - low) / (high - low) : 0.5));
  const place = t * (scale.stops.length - 1), k = Math.min(Math.floor(place), scale.stops.length - 2);
  const [a, b] = [channels(scale.stops[k]), channels(scale.stops[k + 1])];
  return a.map((part, c) => Math.round(part + (place - k) * (b[c] - part)));
}

const css = (parts) => `rgb(${parts.join(",")})`;
